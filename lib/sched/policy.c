/* Policies, assigners and caches by name; see policy.h. */
#include "sched/policy.h"

#include <stddef.h>
#include <string.h>

static const struct sched_policy policies[] = {
    {"ondemand", "load every missing expert, keep none (DeepSpeed's offloading)", ASSIGN_LOAD_ALL,
     CACHE_NONE, false},
    {"static",
     "the experts most activated at first stay, all others are loaded (PreScope's hot experts "
     "alone)",
     ASSIGN_LOAD_ALL, CACHE_STATIC, false},
    {"lru", "least recently used of each layer, misses are loaded (Mixtral-offloading)",
     ASSIGN_LOAD_ALL, CACHE_LRU_LAYER, false},
    {"lfu", "least frequently used of each layer, misses are loaded (MoE-Infinity's cache)",
     ASSIGN_LOAD_ALL, CACHE_LFU, false},
    {"threshold",
     "a missing expert is computed by the CPU where that is sooner than loading it (Fiddler)",
     ASSIGN_THRESHOLD, CACHE_STATIC, false},
    {"qstar",
     "misses shared by the bandwidths of link and CPU, one LRU over all layers (FreeToken)",
     ASSIGN_QSTAR, CACHE_LRU, false},
    {"layerwise", "whole layers on the device, the others on the CPU (llama.cpp, KTransformers)",
     ASSIGN_LAYERWISE, CACHE_LAYERWISE, false},
    {"dali", "greedy assignment by workload, cache by recent workload (DALI)", ASSIGN_GREEDY,
     CACHE_DALI, true},
    {"moed", "segments balanced between link and CPU, cache by decayed frequency (ours)",
     ASSIGN_BALANCE, CACHE_VALUE, true},
};
enum { N_POLICIES = sizeof policies / sizeof *policies };

static const char *const assigner_names[] = {
    [ASSIGN_LOAD_ALL] = "load-all", [ASSIGN_THRESHOLD] = "threshold", [ASSIGN_QSTAR] = "qstar",
    [ASSIGN_GREEDY] = "greedy",     [ASSIGN_LAYERWISE] = "layerwise", [ASSIGN_BALANCE] = "balance",
};

static const char *const cache_names[] = {
    [CACHE_NONE] = "none",           [CACHE_STATIC] = "static", [CACHE_LRU] = "lru",
    [CACHE_LRU_LAYER] = "lru-layer", [CACHE_LFU] = "lfu",       [CACHE_DALI] = "workload",
    [CACHE_LAYERWISE] = "layerwise", [CACHE_VALUE] = "value",
};

const struct sched_policy *sched_policy_at(uint32_t i)
{
    return i < N_POLICIES ? &policies[i] : NULL;
}

const struct sched_policy *sched_policy_find(const char *name)
{
    for (uint32_t i = 0; i < N_POLICIES; i++)
        if (strcmp(policies[i].name, name) == 0)
            return &policies[i];
    return NULL;
}

const char *sched_policy_names(void)
{
    return "ondemand, static, lru, lfu, threshold, qstar, layerwise, dali, moed";
}

/* The index of a name, or n. */
static uint32_t find(const char *const *names, uint32_t n, const char *name)
{
    uint32_t i = 0;
    while (i < n && strcmp(names[i], name) != 0)
        i++;
    return i;
}

bool sched_assigner_find(const char *name, enum sched_assigner *out)
{
    uint32_t n = sizeof assigner_names / sizeof *assigner_names, i = find(assigner_names, n, name);
    if (i < n)
        *out = (enum sched_assigner)i;
    return i < n;
}

const char *sched_assigner_name(enum sched_assigner a)
{
    return assigner_names[a];
}

bool sched_cache_find(const char *name, enum sched_cache_kind *out)
{
    uint32_t n = sizeof cache_names / sizeof *cache_names, i = find(cache_names, n, name);
    if (i < n)
        *out = (enum sched_cache_kind)i;
    return i < n;
}

const char *sched_cache_name(enum sched_cache_kind k)
{
    return cache_names[k];
}
