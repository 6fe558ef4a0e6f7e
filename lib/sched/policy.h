/* Policies by name: presets of an assigner and a cache. */
#ifndef MOED_SCHED_POLICY_H
#define MOED_SCHED_POLICY_H

#include "sched/assign.h"
#include "sched/cache.h"

struct sched_policy {
    const char *name;
    const char *what; /* one line for people, with the source */
    enum sched_assigner assigner;
    enum sched_cache_kind cache;
    bool predicts; /* segments of the next layer are copied ahead, on the next gate's guess */
};

/* ondemand, static, lru, lfu, threshold, qstar, layerwise, dali, moed. NULL for another name. */
const struct sched_policy *sched_policy_find(const char *name);
const struct sched_policy *sched_policy_at(uint32_t i); /* NULL after the last */
const char *sched_policy_names(void);                   /* separated by ", " */

/* "load-all", "threshold", "qstar", "greedy", "layerwise", "balance"; false for another name. */
bool sched_assigner_find(const char *name, enum sched_assigner *out);
const char *sched_assigner_name(enum sched_assigner a);
/* "none", "static", "lru", "lru-layer", "lfu", "workload", "layerwise", "value". */
bool sched_cache_find(const char *name, enum sched_cache_kind *out);
const char *sched_cache_name(enum sched_cache_kind k);

#endif
