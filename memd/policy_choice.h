/* The policy that memd serves with, its parts, and how names choose them. */
#ifndef MOED_MEMD_POLICY_CHOICE_H
#define MOED_MEMD_POLICY_CHOICE_H

#include "base/error.h"
#include "memd/load/predictors_file.h"
#include "model/params.h"
#include "sched/policy.h"

/* Which experts the device keeps, and where experts are computed. */
struct policy_choice {
    const struct sched_policy *policy;
    enum sched_cache_kind cache;  /* the policy's, or another in its place, like all below */
    enum sched_budget budget;     /* one that the cache takes */
    enum sched_assigner assigner; /* for workers */
    enum sched_predictor predictor;
    enum sched_prefetcher prefetcher;
};

/* The names that a user gave; an empty name leaves the part as it is. */
struct policy_names {
    const char *policy, *assigner, *cache, *budget, *predictor, *prefetcher;
};

/* A policy brings its own parts; named parts take their place. ERROR_USAGE: a name is not known, or
 * the cache does not take the budget; *c stays. */
enum error_code policy_choose(struct policy_choice *c, const struct policy_names *names,
                              struct error *e);
/* If the policy's predictor must be trained first, replaces it by one that need not be, and logs
 * that. A predictor that was named stays. */
void policy_settle_predictor(struct policy_choice *c, const struct policy_names *names,
                             const struct predictors_file *predictors,
                             const struct model_params *params);

#endif
