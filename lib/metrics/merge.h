/* Several processes' metrics as one text: every sample gets labels in front of its own, and the
 * families of one name come together, as Prometheus' text format demands. */
#ifndef MOED_METRICS_MERGE_H
#define MOED_METRICS_MERGE_H

#include "base/strbuf.h"

struct metrics_family;

struct metrics_merge {
    struct metrics_family *families;
    size_t count, capacity;
    bool failed;
};

void metrics_merge_init(struct metrics_merge *m);
void metrics_merge_fini(struct metrics_merge *m);
/* text: as metrics_render writes it. labels: `process="memd"`. */
void metrics_merge_add(struct metrics_merge *m, const char *text, const char *labels);
/* Appends everything; out->failed where memory was short. */
void metrics_merge_write(const struct metrics_merge *m, struct strbuf *out);

#endif
