/* Policies by name: presets of an assigner, a cache with its budget, and a predictor. */
#ifndef MOED_SCHED_POLICY_H
#define MOED_SCHED_POLICY_H

#include "sched/assign.h"
#include "sched/cache.h"
#include "sched/predict.h"

struct sched_policy {
    const char *name;
    const char *what; /* one line for people, with the source */
    enum sched_assigner assigner;
    enum sched_cache_kind cache;
    enum sched_budget budget;
    enum sched_predictor predictor; /* what it predicts is copied ahead */
};

/* ondemand, static, lru, lfu, threshold, qstar, layerwise, dali, moed. NULL for another name. */
const struct sched_policy *sched_policy_find(const char *name);
const struct sched_policy *sched_policy_at(uint32_t i); /* NULL after the last */
const char *sched_policy_names(void);                   /* separated by ", " */

/* The parts, each by name; false for another name. A name is NULL for one past the last; `what` is a line for people, names
 * are separated by ", ".
 * Assigners: "load-all", "threshold", "qstar", "greedy", "layerwise", "balance". */
bool sched_assigner_find(const char *name, enum sched_assigner *out);
const char *sched_assigner_name(enum sched_assigner a);
/* "none", "static", "lru", "lfu", "workload", "layerwise", "value". */
bool sched_cache_find(const char *name, enum sched_cache_kind *out);
const char *sched_cache_name(enum sched_cache_kind k);
/* "none", "next-gate", "residual", "frequency". */
bool sched_predictor_find(const char *name, enum sched_predictor *out);
const char *sched_predictor_name(enum sched_predictor p);
const char *sched_predictor_what(enum sched_predictor p);
const char *sched_predictor_names(void);
/* "global", "uniform". */
bool sched_budget_find(const char *name, enum sched_budget *out);
const char *sched_budget_name(enum sched_budget b);
const char *sched_budget_what(enum sched_budget b);
const char *sched_budget_names(void);

#endif
