/* Policies and their parts by name; see policy.h. */
#include "sched/policy.h"

#include <stddef.h>
#include <string.h>

/* One list for each table and its names. SEP stands between the entries. The policies of
 * REPLAY_POLICIES know the future. */
#define POLICIES(X, SEP)                                                                           \
    X("ondemand", "load every missing expert, keep none (DeepSpeed's offloading)",                 \
      ASSIGN_LOAD_ALL, CACHE_NONE, BUDGET_GLOBAL, PREDICT_NONE, PREFETCH_PROBABLE)                 \
    SEP X("static", "only PreScope's hot experts: the most activated stay, all others are loaded", \
          ASSIGN_LOAD_ALL, CACHE_STATIC, BUDGET_GLOBAL, PREDICT_NONE, PREFETCH_PROBABLE)           \
    SEP X("lru", "least recently used of each layer, misses are loaded", ASSIGN_LOAD_ALL,          \
          CACHE_LRU, BUDGET_UNIFORM, PREDICT_NONE, PREFETCH_PROBABLE)                              \
    SEP X("lfu", "least frequently used of each layer, misses are loaded", ASSIGN_LOAD_ALL,        \
          CACHE_LFU, BUDGET_UNIFORM, PREDICT_NONE, PREFETCH_PROBABLE)                              \
    SEP X("mixtral-offloading", "lru, prefetches what the next layer's gate predicts",             \
          ASSIGN_LOAD_ALL, CACHE_LRU, BUDGET_UNIFORM, PREDICT_NEXT_GATE, PREFETCH_PROBABLE)        \
    SEP X("eam", "lfu, prefetches what the most similar request activated (MoE-Infinity)",         \
          ASSIGN_LOAD_ALL, CACHE_LFU, BUDGET_UNIFORM, PREDICT_ACTIVATION_MATRIX,                   \
          PREFETCH_PROBABLE)                                                                       \
    SEP X(                                                                                         \
        "threshold",                                                                               \
        "a missing expert is computed by the CPU where that is sooner than loading it (Fiddler)",  \
        ASSIGN_THRESHOLD, CACHE_STATIC, BUDGET_GLOBAL, PREDICT_NONE, PREFETCH_PROBABLE)            \
    SEP X("score", "cache by gate scores, missing experts shared from both ends (HybriMoE)",       \
          ASSIGN_SCORE_QUEUE, CACHE_SCORE, BUDGET_UNIFORM, PREDICT_NEXT_GATE, PREFETCH_PROBABLE)   \
    SEP X("qstar",                                                                                 \
          "misses shared by bandwidth of link and CPU, one LRU over all layers (FreeToken)",       \
          ASSIGN_QSTAR, CACHE_LRU, BUDGET_GLOBAL, PREDICT_NONE, PREFETCH_PROBABLE)                 \
    SEP X("layerwise",                                                                             \
          "whole layers on the device, the others on the CPU (llama.cpp --no-op-offload)",         \
          ASSIGN_LAYERWISE, CACHE_LAYERWISE, BUDGET_GLOBAL, PREDICT_NONE, PREFETCH_PROBABLE)       \
    SEP X("llama.cpp", "as layerwise; steps of 32 tokens load all that they use (llama.cpp)",      \
          ASSIGN_LAYERWISE_OFFLOAD, CACHE_LAYERWISE, BUDGET_GLOBAL, PREDICT_NONE,                  \
          PREFETCH_PROBABLE)                                                                       \
    SEP X("dali", "greedy assignment by workload, cache by recent workload (DALI)", ASSIGN_GREEDY, \
          CACHE_DALI, BUDGET_UNIFORM, PREDICT_RESIDUAL, PREFETCH_LOADED)                           \
    SEP X("prescope", "loads and prefetches weighed over two layers, hot experts stay (PreScope)", \
          ASSIGN_PRESCHED, CACHE_STATIC, BUDGET_GLOBAL, PREDICT_LLAPOR, PREFETCH_ROTATING)         \
    SEP X("moepic", "prefixes of the most used experts, shares recomputed at times (MoEpic)",      \
          ASSIGN_LOAD_ALL, CACHE_LCP, BUDGET_CONFIGURED, PREDICT_GATE_SCORES, PREFETCH_PROBABLE)   \
    SEP X("promoe", "a trained predictor two layers before, prefetch by segment (ProMoE)",         \
          ASSIGN_LOAD_ALL, CACHE_LRU_PREFETCH, BUDGET_UNIFORM, PREDICT_MLP, PREFETCH_CHUNKED)      \
    SEP X("finemoe", "prefetches what the most similar iteration activated (FineMoE)",             \
          ASSIGN_LOAD_ALL, CACHE_MAP_FREQUENCY, BUDGET_GLOBAL, PREDICT_EXPERT_MAP,                 \
          PREFETCH_URGENT)                                                                         \
    SEP X("specmd", "prefetches by the next gate, keeps what this pass used (SpecMD)",             \
          ASSIGN_LOAD_ALL, CACHE_LEAST_STALE, BUDGET_GLOBAL, PREDICT_NEXT_GATE, PREFETCH_PROBABLE) \
    SEP X("ktransformers",                                                                         \
          "the experts of the last long prompt stay, the others on the CPU (KTransformers)",       \
          ASSIGN_LAYERWISE_STREAM, CACHE_PROMPT, BUDGET_UNIFORM, PREDICT_NONE, PREFETCH_PROBABLE)  \
    SEP X("moe-lightning", "streams each layer while the one before is computed (MoE-Lightning)",  \
          ASSIGN_LOAD_ALL, CACHE_STREAMED, BUDGET_UNIFORM, PREDICT_NONE, PREFETCH_PROBABLE)        \
    SEP X("flashmoe", "longest learned time until the next use of the layer goes (FlashMoE)",      \
          ASSIGN_LOAD_ALL, CACHE_LEARNED, BUDGET_UNIFORM, PREDICT_NONE, PREFETCH_PROBABLE)         \
    SEP X("adapmoe", "next-gate prefetch, each layer's share by how it predicts (AdapMoE)",        \
          ASSIGN_LOAD_ALL, CACHE_ALLOCATED, BUDGET_UNIFORM, PREDICT_NEXT_GATE, PREFETCH_LOADED)    \
    SEP X("fate", "the first layers stay, prefetches by the next gate's scores (Fate)",            \
          ASSIGN_LOAD_ALL, CACHE_SHALLOW, BUDGET_UNIFORM, PREDICT_GATE_SCORES, PREFETCH_PROBABLE)  \
    SEP X("klotski",                                                                               \
          "hot experts by a table of correlations, computed while others come (Klotski)",          \
          ASSIGN_LOAD_ALL, CACHE_LAYERWISE, BUDGET_GLOBAL, PREDICT_CORRELATION, PREFETCH_PROBABLE) \
    SEP X("moed", "segments balanced between link and CPU; cache and prefetch by what they save",  \
          ASSIGN_BALANCE, CACHE_VALUE, BUDGET_GLOBAL, PREDICT_MIXTURE, PREFETCH_SELECTIVE)

#define REPLAY_POLICIES(X, SEP)                                                                    \
    X("belady", "every missing expert is loaded, the one used the farthest in the future goes",    \
      ASSIGN_LOAD_ALL, CACHE_BELADY, BUDGET_GLOBAL, PREDICT_NONE, PREFETCH_PROBABLE)               \
    SEP X("optimal", "the same cache, the best assignment of each layer", ASSIGN_OPTIMAL,          \
          CACHE_BELADY, BUDGET_GLOBAL, PREDICT_NONE, PREFETCH_PROBABLE)

#define ASSIGNERS(X, SEP)                                                                          \
    X("load-all", "every missing segment is loaded", ASSIGN_LOAD_ALL)                              \
    SEP X("threshold", "the CPU where that is sooner than loading, each expert separately",        \
          ASSIGN_THRESHOLD)                                                                        \
    SEP X("qstar", "missing experts shared by the bandwidths of link and CPU", ASSIGN_QSTAR)       \
    SEP X("greedy", "each expert to the side that finishes it sooner", ASSIGN_GREEDY)              \
    SEP X("layerwise", "resident experts on the device, the rest on the CPU", ASSIGN_LAYERWISE)    \
    SEP X("presched", "loads and prefetches weighed in one queue over two layers (PreScope)",      \
          ASSIGN_PRESCHED)                                                                         \
    SEP X("score-queue",                                                                           \
          "the CPU from the fewest tokens up, the device from the most down (HybriMoE)",           \
          ASSIGN_SCORE_QUEUE)                                                                      \
    SEP X("balance", "move segments from the CPU to the link until both finish together",          \
          ASSIGN_BALANCE)                                                                          \
    SEP X("qstar-stream", "as qstar; a prompt loads every missing segment (FreeToken's prefill)",  \
          ASSIGN_QSTAR_STREAM)                                                                     \
    SEP X("greedy-unbound", "as greedy; loads may use half of the device, not the free slots",     \
          ASSIGN_GREEDY_UNBOUND)                                                                   \
    SEP X("layerwise-stream", "as layerwise; a prompt of 512 loads all (KTransformers)",           \
          ASSIGN_LAYERWISE_STREAM)                                                                 \
    SEP X("layerwise-offload", "as layerwise; a step of 32 tokens loads all (llama.cpp)",          \
          ASSIGN_LAYERWISE_OFFLOAD)

#define REPLAY_ASSIGNERS(X, SEP) X("optimal", "the exact 0-1 assignment", ASSIGN_OPTIMAL)

#define CACHES(X, SEP)                                                                             \
    X("none", "a loaded segment is evicted after its use", CACHE_NONE)                             \
    SEP X("static", "the experts most activated in a profile, or at first, fixed", CACHE_STATIC)   \
    SEP X("lru", "least recently used goes", CACHE_LRU)                                            \
    SEP X("lfu", "least frequently used of the layer goes", CACHE_LFU)                             \
    SEP X("workload", "experts with the most recent tokens, swapped every few steps", CACHE_DALI)  \
    SEP X("workload-guarded", "the same, only for an expert with more tokens than its victim",     \
          CACHE_DALI_GUARDED)                                                                      \
    SEP X("layerwise", "whole layers, the first ones, fixed", CACHE_LAYERWISE)                     \
    SEP X("lru-prefetch",                                                                          \
          "least recently used of the layer, where a prediction is a use (ProMoE)",                \
          CACHE_LRU_PREFETCH)                                                                      \
    SEP X("lcp", "least of frequency times decay of the layer goes, prefixes of experts (MoEpic)", \
          CACHE_LCP)                                                                               \
    SEP X("score", "lowest moving average of gate probabilities of the layer goes (HybriMoE)",     \
          CACHE_SCORE)                                                                             \
    SEP X("map-frequency", "least probability times frequency goes (FineMoE)",                     \
          CACHE_MAP_FREQUENCY)                                                                     \
    SEP X("value", "least CPU time saved, recently or by predictions, goes, by segment",           \
          CACHE_VALUE)                                                                             \
    SEP X("arc", "recent against frequent experts, balanced by what was evicted too soon (ARC)",   \
          CACHE_ARC)                                                                               \
    SEP X("lrfu", "least combined recency and frequency goes (LRFU)", CACHE_LRFU)                  \
    SEP X("w-tinylfu", "a small window, and beyond it only what is used more often (W-TinyLFU)",   \
          CACHE_TINYLFU)                                                                           \
    SEP X("least-stale", "what this pass has not used goes, the first layers first (SpecMD)",      \
          CACHE_LEAST_STALE)                                                                       \
    SEP X("prompt-frequency", "what the last long prompt activated most stays (KTransformers)",    \
          CACHE_PROMPT)                                                                            \
    SEP X("streamed", "a part of each layer stays, the next layer's rest comes (MoE-Lightning)",   \
          CACHE_STREAMED)                                                                          \
    SEP X("learned", "longest learned time until the next use of the layer goes (FlashMoE)",       \
          CACHE_LEARNED)                                                                           \
    SEP X("lru-allocated", "as lru; each layer's share by how well it is predicted (AdapMoE)",     \
          CACHE_ALLOCATED)                                                                         \
    SEP X("shallow", "the first four layers stay, equal shares with ARC for the others (Fate)",    \
          CACHE_SHALLOW)

/* For replay only: one knows the future, one is a baseline. */
#define REPLAY_CACHES(X, SEP)                                                                      \
    X("belady", "the one used the farthest in the future goes", CACHE_BELADY)                      \
    SEP X("random", "a random expert of the layer goes", CACHE_RANDOM)

#define PREDICTORS(X, SEP)                                                                         \
    X("none", "nothing is prefetched", PREDICT_NONE)                                               \
    SEP X("next-gate", "the next layer's gate on this layer's input (Mixtral-offloading)",         \
          PREDICT_NEXT_GATE)                                                                       \
    SEP X("gate-scores", "all experts by the scores of the next layer's gate (MoEpic)",            \
          PREDICT_GATE_SCORES)                                                                     \
    SEP X("residual", "next-gate on the input plus the mean step to the next layer's (DALI)",      \
          PREDICT_RESIDUAL)                                                                        \
    SEP X("frequency", "what the layer activated recently, in the background", PREDICT_FREQUENCY)  \
    SEP X("expert-map", "the most similar iteration of 1,000, in the background (FineMoE)",        \
          PREDICT_EXPERT_MAP)                                                                      \
    SEP X("activation-matrix", "the most similar request, in the background (MoE-Infinity)",       \
          PREDICT_ACTIVATION_MATRIX)                                                               \
    SEP X("mlp", "a trained network a layer, a stride before, in the background (ProMoE)",         \
          PREDICT_MLP)                                                                             \
    SEP X("llapor", "the same from the compressed input and the choices (PreScope)",               \
          PREDICT_LLAPOR)                                                                          \
    SEP X("mixture", "several, weighed by how often they were right (ours)", PREDICT_MIXTURE)      \
    SEP X("correlation",                                                                           \
          "what the layer's choices led to most often, in the background (Klotski)",               \
          PREDICT_CORRELATION)                                                                     \
    SEP X("mtp", "a trained block, of the next token before this one is computed (ours)",          \
          PREDICT_MTP)

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
    SEP X("urgent", "by probability / layers until then (FineMoE)", PREFETCH_URGENT)               \
    SEP X("cleared", "as chunked, and a layer's gate drops all predictions (ProMoE)",              \
          PREFETCH_CLEARED)                                                                        \
    SEP X("loaded", "a layer's 1 or 4 with the most tokens, before the cache's swaps (DALI)",      \
          PREFETCH_LOADED)                                                                         \
    SEP X("value", "one queue with the loads, by the seconds that each should save",               \
          PREFETCH_VALUE)                                                                          \
    SEP X("selective", "as probable, if the copy should save time (ours)", PREFETCH_SELECTIVE)

#define COMMA           ,
#define NAME(name, ...) name
#define NAMES(list)     list(NAME, ", ")
#define POLICY(name, ...)                                                                          \
    {                                                                                              \
        name, __VA_ARGS__                                                                          \
    }

/* A part's name, and one line that describes it. */
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
    return "which experts are cached, prefetched, computed where: " NAMES(POLICIES);
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

/* The functions of a part in policy.h, sched_PART_find() and the others. n_live: how many choices,
 * the first ones, a deployment may use. */
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
          "how layers share the device, if the cache supports it")
ACCESSORS(prefetcher, enum sched_prefetcher, prefetchers, COUNT(prefetchers), PREFETCHERS,
          "order in which predicted experts are copied")

/* A plan that decides prefetches needs predictions before it is made; next-gate comes after it. */
enum sched_predictor sched_predictor_untrained(enum sched_assigner assigner)
{
    return sched_assigner_plans_prefetch(assigner) ? PREDICT_EXPERT_MAP : PREDICT_NEXT_GATE;
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
