/* A file of trained predictors, for the model of a trace. */
#ifndef MOED_REPLAY_TRAINED_FILE_H
#define MOED_REPLAY_TRAINED_FILE_H

#include "base/file_map.h"
#include "sched/predict/trained.h"
#include "trace/trace.h"

struct trained_file {
    struct file_map map;
    struct trained_predictors view; /* of the map */
};

/* Without max_tokens and trained. */
struct predict_shape trained_file_shape(const struct trace *t);
/* Refuses predictors of another model. out must be zeroed; the caller closes it in any case. */
enum error_code trained_file_open(const char *path, const struct trace *t, struct trained_file *out,
                                  struct error *e);
void trained_file_close(struct trained_file *f); /* takes a zeroed one */

#endif
