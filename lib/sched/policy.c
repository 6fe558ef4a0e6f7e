/* Policies and their parts by name; see policy.h. */
#include "sched/policy.h"

#include <stddef.h>
#include <string.h>

/* One list for each table and its names. SEP stands between the entries. Those of REPLAY_POLICIES know the future. */
#define POLICIES(X, SEP)                                                                           \
    X("ondemand", "load every missing expert, keep none (DeepSpeed's offloading)",                 \
      ASSIGN_LOAD_ALL, CACHE_NONE, BUDGET_GLOBAL, PREDICT_NONE, PREFETCH_PROBABLE)                 \
    SEP X("static",                                                                                \
          "the experts most activated stay, all others are loaded (PreScope's hot "                \
          "experts alone)",                                                                        \
          ASSIGN_LOAD_ALL, CACHE_STATIC, BUDGET_GLOBAL, PREDICT_NONE, PREFETCH_PROBABLE)           \
    SEP X("lru", "least recently used of each layer, misses are loaded", ASSIGN_LOAD_ALL,          \
          CACHE_LRU, BUDGET_UNIFORM, PREDICT_NONE, PREFETCH_PROBABLE)                              \
    SEP X("lfu", "least frequently used of each layer, misses are loaded", ASSIGN_LOAD_ALL,        \
          CACHE_LFU, BUDGET_UNIFORM, PREDICT_NONE, PREFETCH_PROBABLE)                              \
    SEP X("mixtral-offloading", "lru, and what the next layer's gate says is copied ahead",        \
          ASSIGN_LOAD_ALL, CACHE_LRU, BUDGET_UNIFORM, PREDICT_NEXT_GATE, PREFETCH_PROBABLE)        \
    SEP X(                                                                                         \
        "eam", "lfu, and what the most similar request activated is copied ahead (MoE-Infinity)",  \
        ASSIGN_LOAD_ALL, CACHE_LFU, BUDGET_UNIFORM, PREDICT_ACTIVATION_MATRIX, PREFETCH_PROBABLE)  \
    SEP X(                                                                                         \
        "threshold",                                                                               \
        "a missing expert is computed by the CPU where that is sooner than loading it (Fiddler)",  \
        ASSIGN_THRESHOLD, CACHE_STATIC, BUDGET_GLOBAL, PREDICT_NONE, PREFETCH_PROBABLE)            \
    SEP X("score", "cache by gate scores, missing experts shared from both ends (HybriMoE)",       \
          ASSIGN_SCORE_QUEUE, CACHE_SCORE, BUDGET_UNIFORM, PREDICT_NEXT_GATE, PREFETCH_PROBABLE)   \
    SEP X("qstar",                                                                                 \
          "misses shared by the bandwidths of link and CPU, one LRU over all layers (FreeToken)",  \
          ASSIGN_QSTAR, CACHE_LRU, BUDGET_GLOBAL, PREDICT_NONE, PREFETCH_PROBABLE)                 \
    SEP X("layerwise",                                                                             \
          "whole layers on the device, the others on the CPU (llama.cpp, KTransformers)",          \
          ASSIGN_LAYERWISE, CACHE_LAYERWISE, BUDGET_GLOBAL, PREDICT_NONE, PREFETCH_PROBABLE)       \
    SEP X("dali", "greedy assignment by workload, cache by recent workload (DALI)", ASSIGN_GREEDY, \
          CACHE_DALI, BUDGET_UNIFORM, PREDICT_RESIDUAL, PREFETCH_LOADED)                           \
    SEP X("prescope", "loads and prefetches weighed over two layers, hot experts stay (PreScope)", \
          ASSIGN_PRESCHED, CACHE_STATIC, BUDGET_GLOBAL, PREDICT_LLAPOR, PREFETCH_ROTATING)         \
    SEP X("moepic", "prefixes of the most used experts, shares chosen anew now and then (MoEpic)", \
          ASSIGN_LOAD_ALL, CACHE_LCP, BUDGET_CONFIGURED, PREDICT_GATE_SCORES, PREFETCH_PROBABLE)   \
    SEP X("promoe", "a learned predictor two layers ahead, copied in pieces (ProMoE)",             \
          ASSIGN_LOAD_ALL, CACHE_LRU_AHEAD, BUDGET_UNIFORM, PREDICT_MLP, PREFETCH_CHUNKED)         \
    SEP X("finemoe", "what the most similar iteration activated is copied ahead (FineMoE)",        \
          ASSIGN_LOAD_ALL, CACHE_MAP_FREQUENCY, BUDGET_GLOBAL, PREDICT_EXPERT_MAP,                 \
          PREFETCH_URGENT)                                                                         \
    SEP X("moed",                                                                                  \
          "segments balanced between link and CPU; cache and copies by what they save (ours)",     \
          ASSIGN_BALANCE, CACHE_VALUE, BUDGET_GLOBAL, PREDICT_MIXTURE, PREFETCH_PROBABLE)

#define REPLAY_POLICIES(X, SEP)                                                                    \
    X("belady", "every missing expert is loaded, what is used the farthest in the future goes",    \
      ASSIGN_LOAD_ALL, CACHE_BELADY, BUDGET_GLOBAL, PREDICT_NONE, PREFETCH_PROBABLE)               \
    SEP X("optimal", "the same cache, each layer's assignment the best there is", ASSIGN_OPTIMAL,  \
          CACHE_BELADY, BUDGET_GLOBAL, PREDICT_NONE, PREFETCH_PROBABLE)

#define ASSIGNERS(X, SEP)                                                                          \
    X("load-all", "every missing segment is loaded", ASSIGN_LOAD_ALL)                              \
    SEP X("threshold", "the CPU where that is sooner than loading, each expert by itself",         \
          ASSIGN_THRESHOLD)                                                                        \
    SEP X("qstar", "missing experts shared by the bandwidths of link and CPU", ASSIGN_QSTAR)       \
    SEP X("greedy", "each expert to the side that is done with it sooner", ASSIGN_GREEDY)          \
    SEP X("layerwise", "what is resident on the device, the rest on the CPU", ASSIGN_LAYERWISE)    \
    SEP X("presched", "loads and prefetches weighed in one queue over two layers (PreScope)",      \
          ASSIGN_PRESCHED)                                                                         \
    SEP X("score-queue",                                                                           \
          "the CPU from the fewest tokens up, the device from the most down (HybriMoE)",           \
          ASSIGN_SCORE_QUEUE)                                                                      \
    SEP X("balance", "segments off the CPU onto the link until both are done together",            \
          ASSIGN_BALANCE)

#define REPLAY_ASSIGNERS(X, SEP) X("optimal", "the exact 0-1 assignment", ASSIGN_OPTIMAL)

#define CACHES(X, SEP)                                                                             \
    X("none", "a loaded segment is given up after its use", CACHE_NONE)                            \
    SEP X("static", "the experts most activated in a profile, or at first, fixed", CACHE_STATIC)   \
    SEP X("lru", "least recently used goes", CACHE_LRU)                                            \
    SEP X("lfu", "least frequently used of the layer goes", CACHE_LFU)                             \
    SEP X("workload", "experts with the most tokens of late, swapped every few steps", CACHE_DALI) \
    SEP X("workload-guarded", "the same, where what comes has more tokens than what goes",         \
          CACHE_DALI_GUARDED)                                                                      \
    SEP X("layerwise", "whole layers, the first ones, fixed", CACHE_LAYERWISE)                     \
    SEP X("lru-ahead", "least recently used of the layer, where a prediction is a use (ProMoE)",   \
          CACHE_LRU_AHEAD)                                                                         \
    SEP X("lcp", "least of frequency times decay of the layer goes, prefixes of experts (MoEpic)", \
          CACHE_LCP)                                                                               \
    SEP X("score", "lowest moving average of gate probabilities of the layer goes (HybriMoE)",     \
          CACHE_SCORE)                                                                             \
    SEP X("map-frequency", "least probability times frequency goes (FineMoE)",                     \
          CACHE_MAP_FREQUENCY)                                                                     \
    SEP X("value", "least CPU time saved of late, or by what is predicted, goes, by segment", CACHE_VALUE)

/* They are told what is still to come, or are there to be compared with: for replay alone. */
#define REPLAY_CACHES(X, SEP)                                                                      \
    X("belady", "what is used the farthest in the future goes", CACHE_BELADY)                      \
    SEP X("random", "a random expert of the layer goes", CACHE_RANDOM)

#define PREDICTORS(X, SEP)                                                                         \
    X("none", "nothing is copied ahead", PREDICT_NONE)                                             \
    SEP X("next-gate", "the next layer's gate on this layer's input (Mixtral-offloading)",         \
          PREDICT_NEXT_GATE)                                                                       \
    SEP X("gate-scores", "all experts by the scores of the next layer's gate (MoEpic)",            \
          PREDICT_GATE_SCORES)                                                                     \
    SEP X("residual", "next-gate on the input plus the mean step to the next layer's (DALI)",      \
          PREDICT_RESIDUAL)                                                                        \
    SEP X("frequency", "what the layer activated lately, beside inference", PREDICT_FREQUENCY)     \
    SEP X("expert-map", "the most similar iteration of 1,000, beside inference (FineMoE)",         \
          PREDICT_EXPERT_MAP)                                                                      \
    SEP X("activation-matrix", "the most similar request, beside inference (MoE-Infinity)",        \
          PREDICT_ACTIVATION_MATRIX)                                                               \
    SEP X("mlp", "a trained network a layer, a stride ahead, beside inference (ProMoE)",           \
          PREDICT_MLP)                                                                             \
    SEP X("llapor", "the same from the compressed input and the choices (PreScope)",               \
          PREDICT_LLAPOR)                                                                          \
    SEP X("mixture", "several, mixed by what they turn out to be worth (ours)", PREDICT_MIXTURE)

#define BUDGETS(X, SEP)                                                                            \
    X("global", "layers compete for all slots of the device", BUDGET_GLOBAL)                       \
    SEP X("uniform", "every layer with experts has the same share", BUDGET_UNIFORM)                \
    SEP X("configured", "each layer's share and split from hit rates and predictions (MoEpic)",    \
          BUDGET_CONFIGURED)

#define PREFETCHERS(X, SEP)                                                                        \
    X("probable", "the most probable first", PREFETCH_PROBABLE)                                    \
    SEP X("chunked", "segment by segment, the nearest layer first (ProMoE)", PREFETCH_CHUNKED)     \
    SEP X("rotating", "two groups of buffers that take turns by layer (PreScope)",                 \
          PREFETCH_ROTATING)                                                                       \
    SEP X("urgent", "by probability over the layers until then (FineMoE)", PREFETCH_URGENT)        \
    SEP X("cleared", "as chunked, and a layer's gate drops what is predicted of all (ProMoE)",     \
          PREFETCH_CLEARED)                                                                        \
    SEP X("loaded", "the 1 or 4 of a layer with the most tokens, before the cache's swaps (DALI)", \
          PREFETCH_LOADED)                                                                         \
    SEP X("value", "one queue with the loads, by the seconds that each is expected to save",       \
          PREFETCH_VALUE)

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

static const struct sched_policy policies[] = {POLICIES(POLICY, COMMA)},
                                 replay_policies[] = {REPLAY_POLICIES(POLICY, COMMA)};

static const struct choice assigners[] = {ASSIGNERS(CHOICE, COMMA),
                                          REPLAY_ASSIGNERS(CHOICE, COMMA)};
static const struct choice caches[] = {CACHES(CHOICE, COMMA), REPLAY_CACHES(CHOICE, COMMA)};
static const struct choice predictors[] = {PREDICTORS(CHOICE, COMMA)};
static const struct choice budgets[] = {BUDGETS(CHOICE, COMMA)};
static const struct choice prefetchers[] = {PREFETCHERS(CHOICE, COMMA)};

#define COUNT(table) (sizeof(table) / sizeof *(table))

const struct sched_policy *sched_policy_at(uint32_t i)
{
    return i < COUNT(policies) ? &policies[i] : NULL;
}

const struct sched_policy *sched_policy_find(const char *name)
{
    for (uint32_t i = 0; i < COUNT(policies); i++)
        if (strcmp(policies[i].name, name) == 0)
            return &policies[i];
    return NULL;
}

const struct sched_policy *sched_policy_at_any(uint32_t i)
{
    uint32_t n = COUNT(policies);
    return i < n ? &policies[i] : i - n < COUNT(replay_policies) ? &replay_policies[i - n] : NULL;
}

const char *sched_policy_names_any(void)
{
    return NAMES(POLICIES) ", " NAMES(REPLAY_POLICIES);
}

const char *sched_policy_names(void)
{
    return NAMES(POLICIES);
}

const char *sched_policy_help(void)
{
    return "which experts are cached, computed where and copied ahead: " NAMES(POLICIES);
}

/* One of the first n choices; false: none of them has that name. */
static bool find(const struct choice *choices, size_t n, const char *name, size_t *out)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(choices[i].name, name) == 0) {
            *out = i;
            return true;
        }
    return false;
}

/* What policy.h says of a part, sched_PART_find() and the others. n_live: the first so many choices are not for replay
 * alone. */
#define ACCESSORS(part, type, choices, n_live, LIST, help)                                         \
    bool sched_##part##_find(const char *name, type *out)                                          \
    {                                                                                              \
        size_t i;                                                                                  \
        bool found = find(choices, n_live, name, &i);                                              \
        if (found)                                                                                 \
            *out = (type)i;                                                                        \
        return found;                                                                              \
    }                                                                                              \
    const char *sched_##part##_name(type i)                                                        \
    {                                                                                              \
        return i < COUNT(choices) ? choices[i].name : NULL;                                        \
    }                                                                                              \
    const char *sched_##part##_what(type i)                                                        \
    {                                                                                              \
        return choices[i].what;                                                                    \
    }                                                                                              \
    const char *sched_##part##_names(void)                                                         \
    {                                                                                              \
        return NAMES(LIST);                                                                        \
    }                                                                                              \
    const char *sched_##part##_help(void)                                                          \
    {                                                                                              \
        return help ": " NAMES(LIST);                                                              \
    }

ACCESSORS(assigner, enum sched_assigner, assigners, ASSIGN_OPTIMAL, ASSIGNERS,
          "another assigner than the policy's")
ACCESSORS(cache, enum sched_cache_kind, caches, CACHE_BELADY, CACHES,
          "another cache than the policy's")
ACCESSORS(predictor, enum sched_predictor, predictors, COUNT(predictors), PREDICTORS,
          "another predictor than the policy's")
ACCESSORS(budget, enum sched_budget, budgets, COUNT(budgets), BUDGETS,
          "how layers share the device, where the cache takes it")
ACCESSORS(prefetcher, enum sched_prefetcher, prefetchers, COUNT(prefetchers), PREFETCHERS,
          "in which order what is predicted is copied")

/* A plan that looks ahead has use for what is known before it is made alone, which a guess by the next gate is not. */
enum sched_predictor sched_predictor_untrained(enum sched_assigner assigner)
{
    return sched_assigner_looks_ahead(assigner) ? PREDICT_EXPERT_MAP : PREDICT_NEXT_GATE;
}

bool sched_cache_find_any(const char *name, enum sched_cache_kind *out)
{
    size_t i;
    bool found = find(caches, COUNT(caches), name, &i);
    if (found)
        *out = (enum sched_cache_kind)i;
    return found;
}

const char *sched_cache_names_any(void)
{
    return NAMES(CACHES) ", " NAMES(REPLAY_CACHES);
}
