/* Policies and their parts by name; see policy.h. */
#include "sched/policy.h"

#include <stddef.h>
#include <string.h>

/* One list for each table and its names. SEP stands between the entries. */
#define POLICIES(X, SEP)                                                                           \
    X("ondemand", "load every missing expert, keep none (DeepSpeed's offloading)",                 \
      ASSIGN_LOAD_ALL, CACHE_NONE, BUDGET_GLOBAL, PREDICT_NONE)                                    \
    SEP X("static",                                                                                \
          "the experts most activated at first stay, all others are loaded (PreScope's hot "       \
          "experts alone)",                                                                        \
          ASSIGN_LOAD_ALL, CACHE_STATIC, BUDGET_UNIFORM, PREDICT_NONE)                             \
    SEP X("lru", "least recently used of each layer, misses are loaded (Mixtral-offloading)",      \
          ASSIGN_LOAD_ALL, CACHE_LRU, BUDGET_UNIFORM, PREDICT_NONE)                                \
    SEP X("lfu", "least frequently used of each layer, misses are loaded (MoE-Infinity's cache)",  \
          ASSIGN_LOAD_ALL, CACHE_LFU, BUDGET_UNIFORM, PREDICT_NONE)                                \
    SEP X(                                                                                         \
        "threshold",                                                                               \
        "a missing expert is computed by the CPU where that is sooner than loading it (Fiddler)",  \
        ASSIGN_THRESHOLD, CACHE_STATIC, BUDGET_UNIFORM, PREDICT_NONE)                              \
    SEP X("qstar",                                                                                 \
          "misses shared by the bandwidths of link and CPU, one LRU over all layers (FreeToken)",  \
          ASSIGN_QSTAR, CACHE_LRU, BUDGET_GLOBAL, PREDICT_NONE)                                    \
    SEP X("layerwise",                                                                             \
          "whole layers on the device, the others on the CPU (llama.cpp, KTransformers)",          \
          ASSIGN_LAYERWISE, CACHE_LAYERWISE, BUDGET_GLOBAL, PREDICT_NONE)                          \
    SEP X("dali", "greedy assignment by workload, cache by recent workload (DALI)", ASSIGN_GREEDY, \
          CACHE_DALI, BUDGET_UNIFORM, PREDICT_RESIDUAL)                                            \
    SEP X("moed", "segments balanced between link and CPU, cache by decayed frequency (ours)",     \
          ASSIGN_BALANCE, CACHE_VALUE, BUDGET_GLOBAL, PREDICT_RESIDUAL)

#define ASSIGNERS(X, SEP)                                                                          \
    X("load-all", "every missing segment is loaded", ASSIGN_LOAD_ALL)                              \
    SEP X("threshold", "the CPU where that is sooner than loading, each expert by itself",         \
          ASSIGN_THRESHOLD)                                                                        \
    SEP X("qstar", "missing experts shared by the bandwidths of link and CPU", ASSIGN_QSTAR)       \
    SEP X("greedy", "each expert to the side that is done with it sooner", ASSIGN_GREEDY)          \
    SEP X("layerwise", "what is resident on the device, the rest on the CPU", ASSIGN_LAYERWISE)    \
    SEP X("balance", "segments off the CPU onto the link until both are done together",            \
          ASSIGN_BALANCE)

#define CACHES(X, SEP)                                                                             \
    X("none", "a loaded segment is given up after its use", CACHE_NONE)                            \
    SEP X("static", "the experts most activated at first, fixed", CACHE_STATIC)                    \
    SEP X("lru", "least recently used goes", CACHE_LRU)                                            \
    SEP X("lfu", "least frequently used of the layer goes", CACHE_LFU)                             \
    SEP X("workload", "experts with the most tokens of late, swapped every few steps", CACHE_DALI) \
    SEP X("layerwise", "whole layers, the first ones, fixed", CACHE_LAYERWISE)                     \
    SEP X("value", "least decayed frequency of all layers goes, segment by segment", CACHE_VALUE)

#define PREDICTORS(X, SEP)                                                                         \
    X("none", "nothing is copied ahead", PREDICT_NONE)                                             \
    SEP X("next-gate", "the next layer's gate on this layer's input (Mixtral-offloading)",         \
          PREDICT_NEXT_GATE)                                                                       \
    SEP X("residual", "the same, on the input plus the mean step to the next layer's (DALI)",      \
          PREDICT_RESIDUAL)                                                                        \
    SEP X("frequency", "what the layer activated lately, beside inference", PREDICT_FREQUENCY)

#define BUDGETS(X, SEP)                                                                            \
    X("global", "layers compete for all slots of the device", BUDGET_GLOBAL)                       \
    SEP X("uniform", "every layer with experts has the same share", BUDGET_UNIFORM)

#define COMMA           ,
#define NAME(name, ...) name
#define NAMES(list)     list(NAME, ", ")
#define POLICY(name, ...)                                                                          \
    {                                                                                              \
        name, __VA_ARGS__                                                                          \
    }

/* A part's name; what: where people are told. */
struct choice {
    const char *name, *what;
};
#define CHOICE(name, what, value) [value] = {name, what}

static const struct sched_policy policies[] = {POLICIES(POLICY, COMMA)};
enum { N_POLICIES = sizeof policies / sizeof *policies };

static const struct choice assigners[] = {ASSIGNERS(CHOICE, COMMA)};
static const struct choice caches[] = {CACHES(CHOICE, COMMA)};
static const struct choice predictors[] = {PREDICTORS(CHOICE, COMMA)};
static const struct choice budgets[] = {BUDGETS(CHOICE, COMMA)};

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
    return NAMES(POLICIES);
}

const char *sched_policy_help(void)
{
    return "which experts are cached, computed where and copied ahead: " NAMES(POLICIES);
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

const char *sched_assigner_what(enum sched_assigner a)
{
    return assigners[a].what;
}

const char *sched_assigner_names(void)
{
    return NAMES(ASSIGNERS);
}

const char *sched_assigner_help(void)
{
    return "another assigner than the policy's: " NAMES(ASSIGNERS);
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

const char *sched_cache_what(enum sched_cache_kind k)
{
    return caches[k].what;
}

const char *sched_cache_names(void)
{
    return NAMES(CACHES);
}

const char *sched_cache_help(void)
{
    return "another cache than the policy's: " NAMES(CACHES);
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
    return NAMES(PREDICTORS);
}

const char *sched_predictor_help(void)
{
    return "another predictor than the policy's: " NAMES(PREDICTORS);
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
    return NAMES(BUDGETS);
}

const char *sched_budget_help(void)
{
    return "how layers share the device, where the cache takes it: " NAMES(BUDGETS);
}
