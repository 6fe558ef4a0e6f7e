/* Finds parameters of synthetic traces (synthesize.h) for which caches reach the hit rates that a
 * paper publishes. */
#ifndef MOED_REPLAY_FIT_H
#define MOED_REPLAY_FIT_H

#include "base/error.h"
#include "bench/replay/synthesize.h"

#include <stdio.h>

enum { FIT_MOST_CACHES = 8, FIT_MOST_SIZES = 8 };

/* Hit rates of caches by name and by experts cached a layer, as published. */
struct fit_target {
    const char *name, *what;
    struct synthesis shape; /* the model's shape, and the parameters that are not fitted */
    uint32_t n_layers;      /* layers to simulate; all layers behave alike */
    uint32_t n_caches, n_sizes;
    struct {
        const char *name; /* a cache of lib/sched, or "random-set": experts that never change */
        bool fitted;      /* false: only compared */
        double hit_rate[FIT_MOST_SIZES];
    } caches[FIT_MOST_CACHES];
    uint32_t sizes[FIT_MOST_SIZES];
};

const struct fit_target *fit_target_find(const char *name); /* NULL: unknown */
const char *fit_target_names(void);                         /* separated by ", " */

struct fit_result {
    struct synthesis found; /* skew, locality and topic_strength are fitted */
    double hit_rate[FIT_MOST_CACHES][FIT_MOST_SIZES]; /* NaN: no cache of this name */
    double error; /* root mean square of the differences of the fitted caches */
    uint32_t calls;
};

/* tokens: length of each trial. Deterministic. */
enum error_code fit(const struct fit_target *target, uint64_t tokens, struct fit_result *out,
                    struct error *e);
/* Computes the hit rates of one set of parameters. */
enum error_code fit_evaluate(const struct fit_target *target, const struct synthesis *s,
                             struct fit_result *out, struct error *e);
void fit_print(const struct fit_target *target, const struct fit_result *r, FILE *out);

#endif
