/* KTransformers' dynamic update of the experts on the device (kt-kernel's tutorial on expert
 * scheduling: `--kt-enable-dynamic-expert-update`). Each layer keeps the same number of whole
 * experts: those of a profile, or without one the first ones (its placement `uniform`). A prompt of
 * PROMPT_TOKENS or more is computed on the device, layer by layer; then the layer keeps the experts
 * that the prompt activated most. Nothing else changes the set. Of equal counts the lower number
 * stays.
 *
 * A step counts with its own activations: a prompt that is computed in several steps is updated by
 * each of them that is long enough. Departure: the original copies a layer's choice within the
 * device; here some of it may have been evicted by the time the layer is over, and is loaded again
 * when the link is idle. */
#include "base/arrays.h"
#include "sched/cache/cache_target.h"

/* The threshold of that tutorial; assign_layerwise_stream has the same. */
enum { PROMPT_TOKENS = 512 };

struct prompt_set {
    struct cache_target target;
    uint32_t *tokens; /* [n_experts]: of the layer that is being routed */
    bool *chosen;     /* [n_experts]: scratch */
    uint64_t rows;    /* their sum: tokens times experts that a token activates */
};

/* The layer's most activated experts by tokens, [n_experts], become its set. */
static void choose(struct sched_cache *c, uint32_t layer, const uint32_t *tokens)
{
    struct prompt_set *p = c->state;
    uint32_t first = cache_slab(c, layer, 0), n = c->shape.n_experts;
    for (uint32_t e = 0; e < n; e++)
        p->chosen[e] = false;
    for (uint32_t left = cache_share_experts(c, layer); left; left--) {
        uint32_t best = n;
        for (uint32_t e = 0; e < n; e++)
            if (!p->chosen[e] && (best == n || tokens[e] > tokens[best]))
                best = e;
        p->chosen[best] = true;
    }
    for (uint32_t e = 0; e < n; e++)
        cache_target_set(c, &p->target, first + e, p->chosen[e] ? c->limit[layer] : 0);
}

static bool prompt_init(struct sched_cache *c, const struct sched_cache_options *o)
{
    struct prompt_set *p, new = {0};
    c->state = ARRAYS_NEW(ARRAY(p, 1), ARRAY(new.tokens, c->shape.n_experts),
                          ARRAY(new.chosen, c->shape.n_experts));
    if (!c->state)
        return false;
    *p = new;
    if (!cache_target_init(c, &p->target))
        return false;
    for (uint32_t layer = c->shape.first_layer; layer < c->shape.n_layers; layer++)
        choose(c, layer, o && o->profile ? o->profile + cache_slab(c, layer, 0) : p->tokens);
    return true;
}

static void prompt_fini(struct sched_cache *c)
{
    struct prompt_set *p = c->state;
    cache_target_fini(&p->target);
}

static void prompt_activated(struct sched_cache *c, uint32_t slab, uint32_t workload)
{
    struct prompt_set *p = c->state;
    p->tokens[slab % c->shape.n_experts] += workload;
    p->rows += workload;
}

static void prompt_step_over(struct sched_cache *c, uint32_t layer)
{
    struct prompt_set *p = c->state;
    if (p->rows >= (uint64_t)PROMPT_TOKENS * c->shape.n_used)
        choose(c, layer, p->tokens);
    for (uint32_t e = 0; e < c->shape.n_experts; e++)
        p->tokens[e] = 0;
    p->rows = 0;
}

static void prompt_changed(struct sched_cache *c, uint32_t slab, uint32_t before)
{
    struct prompt_set *p = c->state;
    cache_target_changed(c, &p->target, slab, before);
}

static bool prompt_victim(const struct sched_cache *c, const struct cache_search *s, uint32_t *slab)
{
    const struct prompt_set *p = c->state;
    return cache_target_victim(c, &p->target, s, slab);
}

static bool prompt_wanted(struct sched_cache *c, uint64_t free_segments,
                          const struct cache_search *s, uint32_t *slab)
{
    const struct prompt_set *p = c->state;
    return cache_target_wanted(c, &p->target, free_segments, s, slab);
}

const struct cache_policy cache_policy_prompt = {
    .keeps_loads = true,
    .init = prompt_init,
    .fini = prompt_fini,
    .activated = prompt_activated,
    .step_over = prompt_step_over,
    .changed = prompt_changed,
    .victim = prompt_victim,
    .wanted = prompt_wanted,
};
