/* The plan of a replay: one run for each combination of policy, VRAM budget and batch. */
#ifndef MOED_REPLAY_PLAN_H
#define MOED_REPLAY_PLAN_H

#include "bench/replay/simulate.h"

#include "base/strbuf.h"

enum { PLAN_MOST_POLICIES = 64, PLAN_MOST_VALUES = 16 };

/* A preset, perhaps with parts replaced. name: as the user wrote it. */
struct plan_variant {
    struct sched_policy policy;
    char name[64];
    bool predictor_named;
};

/* Do not copy: `policies` points into the struct. */
struct replay_plan {
    const struct sched_policy *policies[PLAN_MOST_POLICIES];
    struct plan_variant variants[PLAN_MOST_POLICIES]; /* [i]: used if policies[i] is not a preset */
    char notes[PLAN_MOST_POLICIES][96];               /* results' notes; "": none */
    bool without_solver; /* "all" has no policy that needs a solver, because there is none */
    double vram[PLAN_MOST_VALUES];
    uint32_t batch[PLAN_MOST_VALUES];
    uint32_t n_policies, n_vram, n_batch;
};

/* Parse the lists of the command line. Policies: "all", or names, where NAME/PART=VALUE replaces a
 * part of the preset, as in "moed,moed/cache=lru/predictor=none". vram: "10%,25%". batch: "1,4,16".
 * The text of ERROR_USAGE names the wrong item and the allowed values. */
enum error_code plan_policies(struct replay_plan *p, const char *text, struct error *e);
enum error_code plan_vram(struct replay_plan *p, const char *text, struct error *e);
enum error_code plan_batch(struct replay_plan *p, const char *text, struct error *e);

/* Replaces predictors that need training and have none by sched_predictor_untrained, as memd does.
 * Appends "NAME with PREDICTOR" for each replacement to `settled` (initialised). If the user named
 * the predictor, it is refused instead (ERROR_USAGE). */
enum error_code plan_settle_predictors(struct replay_plan *p, const struct predict_shape *shape,
                                       struct strbuf *settled, struct error *e);

typedef enum error_code plan_simulate(const struct replay_run *run, struct replay_result *out,
                                      struct error *e);
typedef void plan_progress(void *arg, uint32_t done, uint32_t of, const struct replay_run *next);

/* results: [plan_size], ordered by budget, then batch, then policy. what: its policy, vram and
 * batch are ignored. progress may be NULL. */
uint32_t plan_size(const struct replay_plan *p);
enum error_code plan_run(const struct replay_plan *p, const struct replay_run *what,
                         plan_simulate *simulate, plan_progress *progress, void *arg,
                         struct replay_result *results, struct error *e);

#endif
