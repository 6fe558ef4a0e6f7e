/* The weights of MoE-Lightning's pipeline (Cao et al., ASPLOS 2025: CGOPipe with paged weights): an
 * equal part of each layer stays on the device (its r_w), the rest of a layer is copied, page by
 * page, while the layer before is computed, whatever the gate will choose. Two layers' rests have a
 * buffer each, which take turns. With capacity C, L layers and W segments in a layer each layer
 * keeps
 *
 *     s = (C - 2 W) / (L - 2)    segments, at least 0
 *
 * since L s + 2 (W - s) = C: the first ones. A page is a segment.
 *
 * The paper computes attention on the CPU, in micro-batches between which it sends the pages; that
 * is no matter of a cache, and left out. It chooses r_w with a model of the machine; here all of
 * the device's memory is used. Where two layers do not fit, as much of the next one is copied as
 * does. Before a layer was routed, the first one is the next. */
#include "sched/cache/cache_target.h"

#include <stdlib.h>

static bool streamed_init(struct sched_cache *c, const struct sched_cache_options *o)
{
    struct cache_target *t = c->state = calloc(1, sizeof *t);
    if (!t || !cache_target_init(c, t))
        return false;
    for (uint32_t layer = c->shape.first_layer; layer < c->shape.n_layers; layer++) {
        uint64_t whole = (uint64_t)c->shape.n_experts * c->limit[layer];
        uint64_t left = c->shape.capacity > 2 * whole && c->expert_layers > 2
                            ? (c->shape.capacity - 2 * whole) / (c->expert_layers - 2)
                            : 0;
        for (uint32_t e = 0; e < c->shape.n_experts && left; e++) {
            uint32_t n = left < c->limit[layer] ? (uint32_t)left : c->limit[layer];
            cache_target_set(c, t, cache_slab(c, layer, e), n);
            left -= n;
        }
    }
    return true;
}

static void streamed_fini(struct sched_cache *c)
{
    cache_target_fini(c->state);
}

static void streamed_changed(struct sched_cache *c, uint32_t slab, uint32_t before)
{
    cache_target_changed(c, c->state, slab, before);
}

static uint32_t next_layer(const struct sched_cache *c)
{
    bool first = !c->reported || c->layer + 1 >= c->shape.n_layers;
    return first ? c->shape.first_layer : c->layer + 1;
}

/* The buffers of the layers whose turn is over, the one just before the layer under way first. */
static bool passed_rest(const struct sched_cache *c, const struct cache_search *s, uint32_t *slab)
{
    const struct cache_target *t = c->state;
    uint32_t n = c->expert_layers, next = next_layer(c) - c->shape.first_layer;
    for (uint32_t back = 1; back < n && t->total_surplus; back++) {
        uint32_t layer = c->shape.first_layer + (next + n - back) % n;
        bool in_turn = layer == c->shape.first_layer + next || (c->reported && layer == c->layer);
        if (!in_turn && cache_surplus_of_layer(c, t, s, layer, slab))
            return true;
    }
    return false;
}

static bool streamed_victim(const struct sched_cache *c, const struct cache_search *s,
                            uint32_t *slab)
{
    return passed_rest(c, s, slab) ||
           (s->demanded && (cache_surplus_of_layer(c, c->state, s, next_layer(c), slab) ||
                            cache_oldest_anywhere(c, s, slab)));
}

static bool streamed_wanted(struct sched_cache *c, uint64_t free_segments,
                            const struct cache_search *s, uint32_t *slab)
{
    const struct cache_target *t = c->state;
    if (!c->expert_layers || (!free_segments && !t->total_surplus))
        return false;
    uint32_t layer = next_layer(c), first = cache_slab(c, layer, 0);
    for (*slab = first; *slab < first + c->shape.n_experts; ++*slab)
        if (c->resident[*slab] < c->limit[layer] && cache_obtainable(c, s, *slab))
            return true;
    return false;
}

const struct cache_policy cache_policy_streamed = {
    .keeps_loads = true,
    .init = streamed_init,
    .fini = streamed_fini,
    .changed = streamed_changed,
    .victim = streamed_victim,
    .passed = passed_rest,
    .wanted = streamed_wanted,
};
