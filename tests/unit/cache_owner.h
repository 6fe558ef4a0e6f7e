/* A cache owner for test_sched_cache*.c: it obeys its cache policy and keeps its own record of
 * residency and use. */
#ifndef MOED_TESTS_CACHE_OWNER_H
#define MOED_TESTS_CACHE_OWNER_H

#include "sched/policy.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

enum { MOST_LAYERS = 6, MOST_EXPERTS = 24 };

/* Each kind with each budget that it takes, in order. */
static inline bool variant_at(uint32_t i, enum sched_cache_kind *kind, enum sched_budget *budget)
{
    for (int k = 0; k < CACHE_KINDS; k++)
        for (int b = 0; b < BUDGET_KINDS; b++)
            if (sched_cache_takes((enum sched_cache_kind)k, (enum sched_budget)b) && i-- == 0) {
                *kind = (enum sched_cache_kind)k;
                *budget = (enum sched_budget)b;
                return true;
            }
    return false;
}

static const struct sched_cache_options uniform = {.budget = BUDGET_UNIFORM};

/* The owner with its own record of residency and use. */
struct owner {
    struct sched_cache *cache;
    enum sched_cache_kind kind;
    enum sched_budget budget;
    struct sched_cache_shape shape;
    uint32_t resident[MOST_LAYERS][MOST_EXPERTS], layer_resident[MOST_LAYERS];
    uint64_t last[MOST_LAYERS][MOST_EXPERTS]; /* activation or arrival, in order */
    uint64_t tokens[MOST_LAYERS][MOST_EXPERTS];
    long double value[MOST_LAYERS][MOST_EXPERTS];
    long double score[MOST_LAYERS][MOST_EXPERTS];
    double probability[MOST_LAYERS][MOST_EXPERTS]; /* as predicted last; 0: it was not in it */
    long double upcoming[MOST_LAYERS]
                        [MOST_EXPERTS]; /* value of a prediction, until its layer is over */
    long double count[MOST_LAYERS][MOST_EXPERTS], counted; /* in the long run, and all together */
    long double usual[MOST_LAYERS]
                     [MOST_EXPERTS]; /* what those are worth, by when the layer was over last */
    uint32_t steps_counted;
    uint64_t routed_step;
    uint32_t routed_layer, n_routed;        /* experts that were */
    bool prompt, routed_prompt;             /* the step is one; that of routed_layer is */
    bool absent[MOST_LAYERS][MOST_EXPERTS]; /* nothing resident when the layer before was routed */
    int noted_layer;                        /* the next layer, if `absent` is set for it */
    uint32_t n_absent;                      /* of the layer routed last, */
    double layer_ratio;                     /* and its tokens for each of them */
    double ratio; /* the same of the last layer of a step that used most and lacked some */
    uint32_t visits[MOST_LAYERS][MOST_EXPERTS];
    uint64_t token[MOST_LAYERS][MOST_EXPERTS]; /* of the layer, at the last activation */
    uint64_t layer_tokens[MOST_LAYERS];
    bool blocked[MOST_LAYERS][MOST_EXPERTS];
    uint64_t clock, step, total;
    long double decay; /* of value, from one step to the next */
    uint64_t digest;   /* of every answer */
};

static inline struct owner new_owner(enum sched_cache_kind kind, struct sched_cache_shape shape,
                                     const struct sched_cache_options *options)
{
    struct owner o = {.kind = kind, .shape = shape, .noted_layer = -1};
    o.budget = options ? options->budget : sched_cache_budget(kind);
    o.cache = sched_cache_new(kind, &shape, options);
    assert_non_null(o.cache);
    return o;
}

static inline void report(struct owner *o, uint32_t layer, uint32_t expert, uint32_t segments)
{
    uint32_t before = o->resident[layer][expert];
    if (before == 0 && segments)
        o->last[layer][expert] = ++o->clock;
    o->layer_resident[layer] += segments - before;
    o->total = o->total + segments - before;
    o->resident[layer][expert] = segments;
    sched_cache_resident(o->cache, layer, expert, segments);
    assert_int_equal(sched_cache_segments(o->cache, layer, expert), segments);
}

/* True if the step is a prompt and activates more than half of a layer, or activates all of it. */
static inline bool uses_most(const struct owner *o)
{
    return (o->routed_prompt && 2 * o->n_routed > o->shape.n_experts) ||
           o->n_routed == o->shape.n_experts;
}

static inline void note_absent(struct owner *o, uint32_t layer)
{
    for (uint32_t e = 0; e < o->shape.n_experts; e++)
        o->absent[layer][e] = o->resident[layer][e] == 0;
}

/* What value makes of the long run in every eighth step of a layer: for the mean expert 1/24 of
 * what one is worth that every step activates, and one more of each in the mean. In a step that
 * follows it has decayed once since. */
static inline void layer_is_over(struct owner *o, long double decay)
{
    uint32_t layer = o->routed_layer,
             n = (o->shape.n_layers - o->shape.first_layer) * o->shape.n_experts;
    memset(o->upcoming[layer], 0, sizeof o->upcoming[layer]);
    if (uses_most(o) && o->n_absent)
        o->ratio = o->layer_ratio;
    for (uint32_t e = 0; (o->steps_counted + layer) % 8 == 0 && e < o->shape.n_experts; e++)
        o->usual[layer][e] =
            o->decay / (1 - o->decay) / 24 * decay * o->count[layer][e] / (o->counted / n + 1);
}

/* Counts of the long run are halved now and then. */
static inline void step_is_over(struct owner *o)
{
    if (++o->steps_counted < 2048)
        return;
    for (uint32_t l = 0; l < o->shape.n_layers; l++)
        for (uint32_t e = 0; e < o->shape.n_experts; e++)
            o->count[l][e] /= 2;
    o->counted /= 2;
    o->steps_counted = 0;
}

static inline void route(struct owner *o, uint32_t layer, const uint16_t *experts,
                         const uint16_t *workloads, uint32_t n)
{
    uint64_t tokens = 0, absent_tokens = 0;
    bool next_step = o->step != o->routed_step;
    if (o->n_routed && (layer != o->routed_layer || next_step))
        layer_is_over(o, next_step ? o->decay : 1);
    if (o->n_routed && next_step)
        step_is_over(o);
    o->routed_step = o->step;
    o->n_routed = n;
    o->routed_layer = layer;
    o->routed_prompt = o->prompt;
    if (n && o->noted_layer != (int)layer)
        note_absent(o, layer);
    o->n_absent = 0;
    for (uint32_t e = 0; e < o->shape.n_experts; e++)
        o->n_absent += o->absent[layer][e];
    for (uint32_t i = 0; i < n; i++) {
        absent_tokens += o->absent[layer][experts[i]] ? workloads[i] : 0;
        o->upcoming[layer][experts[i]] = 0;
        o->last[layer][experts[i]] = ++o->clock;
        o->tokens[layer][experts[i]] += workloads[i];
        o->value[layer][experts[i]] += 1;
        o->count[layer][experts[i]] += 1;
        o->counted += 1;
        o->visits[layer][experts[i]]++;
        tokens += workloads[i];
    }
    o->layer_ratio = o->n_absent ? (double)absent_tokens / o->n_absent : o->ratio;
    o->noted_layer = n && layer + 1 < o->shape.n_layers ? (int)layer + 1 : -1;
    if (o->noted_layer > 0)
        note_absent(o, layer + 1);
    o->layer_tokens[layer] += (tokens + o->shape.n_used - 1) / o->shape.n_used;
    for (uint32_t i = 0; i < n; i++)
        o->token[layer][experts[i]] = o->layer_tokens[layer];
    /* as memd does: a few at a time */
    for (uint32_t i = 0; i < n; i += 3)
        sched_cache_routed(o->cache, o->step, layer, o->prompt, experts + i, workloads + i,
                           n - i < 3 ? n - i : 3);
}

static inline void route_one(struct owner *o, uint32_t layer, uint16_t expert, uint16_t workload)
{
    route(o, layer, &expert, &workload, 1);
}

static inline bool is_blocked(void *arg, uint32_t layer, uint32_t expert)
{
    struct owner *o = arg;
    assert_true(layer < o->shape.n_layers && expert < o->shape.n_experts);
    return o->blocked[layer][expert];
}

static inline bool evictable(const struct owner *o, uint32_t for_layer, uint32_t for_expert,
                             uint32_t layer, uint32_t expert)
{
    return o->resident[layer][expert] && !o->blocked[layer][expert] &&
           (layer != for_layer || expert != for_expert);
}

static inline void note(struct owner *o, uint64_t answer)
{
    o->digest = (o->digest ^ answer) * 0x100000001b3u;
}

static inline bool ask_victim(struct owner *o, uint32_t layer, uint32_t expert, bool demanded,
                              uint32_t *victim_layer, uint32_t *victim_expert)
{
    bool found = sched_cache_victim(o->cache, layer, expert, demanded, 0, is_blocked, o,
                                    victim_layer, victim_expert);
    note(o, found ? 1000 + *victim_layer * 100 + *victim_expert : 7);
    return found;
}

static inline void expect_victim(struct owner *o, uint32_t layer, uint32_t expert, bool demanded,
                                 uint32_t victim_layer, uint32_t victim_expert)
{
    uint32_t l = 99, e = 99;
    if (!ask_victim(o, layer, expert, demanded, &l, &e))
        fail_msg("no victim, not %u.%u", victim_layer, victim_expert);
    if (l != victim_layer || e != victim_expert)
        fail_msg("victim %u.%u, not %u.%u", l, e, victim_layer, victim_expert);
}

static inline void expect_no_victim(struct owner *o, uint32_t layer, uint32_t expert, bool demanded)
{
    uint32_t l, e;
    assert_false(ask_victim(o, layer, expert, demanded, &l, &e));
}

/* Copies all that the policy wants while there are free slots. */
static inline void fill(struct owner *o)
{
    uint32_t layer, expert;
    while (
        sched_cache_wanted(o->cache, o->shape.capacity - o->total, NULL, NULL, &layer, &expert)) {
        assert_true(o->total < o->shape.capacity);
        assert_true(o->resident[layer][expert] < o->shape.n_segments);
        report(o, layer, expert, o->resident[layer][expert] + 1);
    }
}

static inline struct sched_cache_shape shape(uint32_t layers, uint32_t experts, uint32_t segments,
                                             uint64_t capacity)
{
    return (struct sched_cache_shape){.n_layers = layers,
                                      .n_experts = experts,
                                      .n_segments = segments,
                                      .n_used = 2,
                                      .capacity = capacity};
}

#endif
