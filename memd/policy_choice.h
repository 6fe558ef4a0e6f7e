/* The policy that memd serves with, its parts, and their choice by name. */
#ifndef MOED_MEMD_POLICY_CHOICE_H
#define MOED_MEMD_POLICY_CHOICE_H

#include "base/error.h"
#include "learned.h"
#include "model/params.h"
#include "sched/policy.h"

/* Which experts the device keeps, and who computes what. */
struct policy_choice {
    const struct sched_policy *policy;
    enum sched_cache_kind cache;  /* the policy's, or another in its place */
    enum sched_budget budget;     /* likewise; one that the cache takes */
    enum sched_assigner assigner; /* likewise; of workers */
    enum sched_predictor predictor;
    enum sched_prefetcher prefetcher;
};

/* What was asked for by name; a name that is empty leaves what there is. */
struct policy_names {
    const char *policy, *assigner, *cache, *budget, *predictor, *prefetcher;
};

/* A policy brings its own parts, those that are named take their place. ERROR_USAGE: a name is not known, or the cache does
 * not take the budget; *c stays. */
enum error_code policy_choose(struct policy_choice *c, const struct policy_names *names, struct error *e);
/* A policy whose predictor has to be trained first serves with another meanwhile; a predictor that is named itself does not. */
void policy_settle_predictor(struct policy_choice *c, const struct policy_names *names,
                             const struct learned_file *learned, const struct model_params *params);

#endif
