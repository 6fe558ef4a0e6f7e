/* Policies and their parts by name; see policy.h. */
#include "sched/policy.h"

#include <stddef.h>
#include <string.h>

static const struct sched_policy policies[] = {
    {"ondemand", "load every missing expert, keep none (DeepSpeed's offloading)", ASSIGN_LOAD_ALL,
     CACHE_NONE, BUDGET_GLOBAL, PREDICT_NONE},
    {"static",
     "the experts most activated at first stay, all others are loaded (PreScope's hot experts "
     "alone)",
     ASSIGN_LOAD_ALL, CACHE_STATIC, BUDGET_UNIFORM, PREDICT_NONE},
    {"lru", "least recently used of each layer, misses are loaded (Mixtral-offloading)",
     ASSIGN_LOAD_ALL, CACHE_LRU, BUDGET_UNIFORM, PREDICT_NONE},
    {"lfu", "least frequently used of each layer, misses are loaded (MoE-Infinity's cache)",
     ASSIGN_LOAD_ALL, CACHE_LFU, BUDGET_UNIFORM, PREDICT_NONE},
    {"threshold",
     "a missing expert is computed by the CPU where that is sooner than loading it (Fiddler)",
     ASSIGN_THRESHOLD, CACHE_STATIC, BUDGET_UNIFORM, PREDICT_NONE},
    {"qstar",
     "misses shared by the bandwidths of link and CPU, one LRU over all layers (FreeToken)",
     ASSIGN_QSTAR, CACHE_LRU, BUDGET_GLOBAL, PREDICT_NONE},
    {"layerwise", "whole layers on the device, the others on the CPU (llama.cpp, KTransformers)",
     ASSIGN_LAYERWISE, CACHE_LAYERWISE, BUDGET_GLOBAL, PREDICT_NONE},
    {"dali", "greedy assignment by workload, cache by recent workload (DALI)", ASSIGN_GREEDY,
     CACHE_DALI, BUDGET_UNIFORM, PREDICT_RESIDUAL},
    {"moed", "segments balanced between link and CPU, cache by decayed frequency (ours)",
     ASSIGN_BALANCE, CACHE_VALUE, BUDGET_GLOBAL, PREDICT_RESIDUAL},
};
enum { N_POLICIES = sizeof policies / sizeof *policies };

/* A part's name; what: where people are told. */
struct choice {
    const char *name, *what;
};

static const struct choice assigners[] = {
    [ASSIGN_LOAD_ALL] = {"load-all", NULL},   [ASSIGN_THRESHOLD] = {"threshold", NULL},
    [ASSIGN_QSTAR] = {"qstar", NULL},         [ASSIGN_GREEDY] = {"greedy", NULL},
    [ASSIGN_LAYERWISE] = {"layerwise", NULL}, [ASSIGN_BALANCE] = {"balance", NULL},
};

static const struct choice caches[] = {
    [CACHE_NONE] = {"none", NULL},     [CACHE_STATIC] = {"static", NULL},
    [CACHE_LRU] = {"lru", NULL},       [CACHE_LFU] = {"lfu", NULL},
    [CACHE_DALI] = {"workload", NULL}, [CACHE_LAYERWISE] = {"layerwise", NULL},
    [CACHE_VALUE] = {"value", NULL},
};

static const struct choice predictors[] = {
    [PREDICT_NONE] = {"none", "nothing is copied ahead"},
    [PREDICT_NEXT_GATE] = {"next-gate",
                           "the next layer's gate on this layer's input (Mixtral-offloading)"},
    [PREDICT_RESIDUAL] = {"residual",
                          "the same, on the input plus the mean step to the next layer's (DALI)"},
    [PREDICT_FREQUENCY] = {"frequency", "what the layer activated lately, beside inference"},
};

static const struct choice budgets[] = {
    [BUDGET_GLOBAL] = {"global", "layers compete for all slots of the device"},
    [BUDGET_UNIFORM] = {"uniform", "every layer with experts has the same share"},
};

#define COUNT(table) (sizeof(table) / sizeof *(table))

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

/* False: there is none of that name. */
static bool find(const struct choice *choices, size_t n, const char *name, size_t *out)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(choices[i].name, name) == 0) {
            *out = i;
            return true;
        }
    return false;
}

bool sched_assigner_find(const char *name, enum sched_assigner *out)
{
    size_t i;
    bool found = find(assigners, COUNT(assigners), name, &i);
    if (found)
        *out = (enum sched_assigner)i;
    return found;
}

const char *sched_assigner_name(enum sched_assigner a)
{
    return a < COUNT(assigners) ? assigners[a].name : NULL;
}

bool sched_cache_find(const char *name, enum sched_cache_kind *out)
{
    size_t i;
    bool found = find(caches, COUNT(caches), name, &i);
    if (found)
        *out = (enum sched_cache_kind)i;
    return found;
}

const char *sched_cache_name(enum sched_cache_kind k)
{
    return k < COUNT(caches) ? caches[k].name : NULL;
}

bool sched_predictor_find(const char *name, enum sched_predictor *out)
{
    size_t i;
    bool found = find(predictors, COUNT(predictors), name, &i);
    if (found)
        *out = (enum sched_predictor)i;
    return found;
}

const char *sched_predictor_name(enum sched_predictor p)
{
    return p < COUNT(predictors) ? predictors[p].name : NULL;
}

const char *sched_predictor_what(enum sched_predictor p)
{
    return predictors[p].what;
}

const char *sched_predictor_names(void)
{
    return "none, next-gate, residual, frequency";
}

bool sched_budget_find(const char *name, enum sched_budget *out)
{
    size_t i;
    bool found = find(budgets, COUNT(budgets), name, &i);
    if (found)
        *out = (enum sched_budget)i;
    return found;
}

const char *sched_budget_name(enum sched_budget b)
{
    return b < COUNT(budgets) ? budgets[b].name : NULL;
}

const char *sched_budget_what(enum sched_budget b)
{
    return budgets[b].what;
}

const char *sched_budget_names(void)
{
    return "global, uniform";
}
