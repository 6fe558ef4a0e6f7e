/* What is replayed: every policy at every budget with every batch, one result each. */
#ifndef MOED_REPLAY_PLAN_H
#define MOED_REPLAY_PLAN_H

#include "bench/replay/simulate.h"

#include "base/strbuf.h"

enum { PLAN_MOST_POLICIES = 64, PLAN_MOST_VALUES = 16 };

/* Of a preset, or with parts of it replaced: named as it was given. */
struct plan_variant {
    struct sched_policy policy;
    char name[64];
    bool predictor_named;
};

/* Not to be copied: policies points into it. */
struct replay_plan {
    const struct sched_policy *policies[PLAN_MOST_POLICIES];
    struct plan_variant variants[PLAN_MOST_POLICIES]; /* [i]: used where policies[i] is no preset */
    double vram[PLAN_MOST_VALUES];
    uint32_t batch[PLAN_MOST_VALUES];
    uint32_t n_policies, n_vram, n_batch;
};

/* Lists as they are given: "all" or names, a name with parts in the place of the preset's: "moed,moed/cache=lru/predictor=none"; "10%,25%"; "1,4,16". ERROR_USAGE names what is wrong and what is allowed. */
enum error_code plan_policies(struct replay_plan *p, const char *text, struct error *e);
enum error_code plan_vram(struct replay_plan *p, const char *text, struct error *e);
enum error_code plan_batch(struct replay_plan *p, const char *text, struct error *e);

/* As memd does: a policy whose predictor has to be trained and was not has another in its place
 * (sched_predictor_untrained), and stands in `settled` (initialised) as "NAME with PREDICTOR"; a predictor that is named
 * itself is refused, ERROR_USAGE. */
enum error_code plan_settle_predictors(struct replay_plan *p, const struct predict_shape *shape,
                                       struct strbuf *settled, struct error *e);

typedef enum error_code plan_simulate(const struct replay_run *run, struct replay_result *out,
                                      struct error *e);
typedef void plan_progress(void *arg, uint32_t done, uint32_t of, const struct replay_run *next);

/* results: [plan_size]; by budget, then batch, then policy. what: policy, vram and batch of it are not read. progress may be
 * NULL. */
uint32_t plan_size(const struct replay_plan *p);
enum error_code plan_run(const struct replay_plan *p, const struct replay_run *what,
                         plan_simulate *simulate, plan_progress *progress, void *arg,
                         struct replay_result *results, struct error *e);

#endif
