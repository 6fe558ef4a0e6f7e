/* Fate's cache (Fang et al., arXiv 2502.12224): all experts of the first layers stay, whose routing
 * is hard to predict; what is left of the device is shared equally by the deeper layers, each with
 * ARC (arc.h). The paper finds the border from the predictions of each layer; its published code
 * has four layers for all of its models, which have 24 to 32. Here it is four, but at most a sixth
 * of the layers, rounded up, so that models with fewer layers keep about the proportion. If fewer
 * whole layers fit, as in that code: as many as do, the rest goes to the next one, and the deeper
 * layers have no share; they keep what no other layer has a right to. */
#include "base/arrays.h"
#include "sched/cache/arc.h"
#include "sched/cache/cache_target.h"

enum { SHALLOW = 4, SHALLOW_PART = 6 };

struct shallow {
    struct cache_target target; /* of the layers that stay */
    struct arc *arcs;           /* [n_layers] */
    uint64_t *shares;           /* [n_layers] segments */
    bool *stays;                /* [n_layers] */
};

/* Sets the layers that stay, and the others' shares. */
static void divide(struct sched_cache *c)
{
    struct shallow *f = c->state;
    uint64_t left = c->shape.capacity;
    uint32_t layer = c->shape.first_layer,
             most = (c->expert_layers + SHALLOW_PART - 1) / SHALLOW_PART;
    uint32_t end = layer + (most < SHALLOW ? most : SHALLOW);
    for (; layer < end; layer++) {
        uint64_t whole = (uint64_t)c->shape.n_experts * c->limit[layer];
        f->shares[layer] = left < whole ? left : whole;
        f->stays[layer] = left >= whole;
        left -= f->shares[layer];
        for (uint32_t e = 0; e < c->shape.n_experts && f->stays[layer]; e++)
            cache_target_set(c, &f->target, cache_slab(c, layer, e), c->limit[layer]);
    }
    for (uint32_t deep = layer; deep < c->shape.n_layers; deep++)
        f->shares[deep] = left / (c->shape.n_layers - layer);
}

static bool shallow_init(struct sched_cache *c, const struct sched_cache_options *o)
{
    struct shallow *f, new = {0};
    uint32_t layers = c->shape.n_layers;
    c->state = ARRAYS_NEW(ARRAY(f, 1), ARRAY(new.arcs, layers), ARRAY(new.shares, layers),
                          ARRAY(new.stays, layers));
    if (!c->state)
        return false;
    *f = new;
    if (!cache_target_init(c, &f->target))
        return false;
    divide(c);
    for (uint32_t l = 0; l < layers; l++) {
        uint64_t experts = c->limit[l] ? f->shares[l] / c->limit[l] : 0;
        if (!arc_init(&f->arcs[l], c->shape.n_experts, experts ? experts : 1))
            return false;
    }
    return true;
}

static void shallow_fini(struct sched_cache *c)
{
    struct shallow *f = c->state;
    cache_target_fini(&f->target);
    for (uint32_t l = 0; l < c->shape.n_layers; l++)
        arc_fini(&f->arcs[l]);
}

static void shallow_activated(struct sched_cache *c, uint32_t slab, uint32_t workload)
{
    struct shallow *f = c->state;
    arc_used(&f->arcs[cache_layer_of(c, slab)], slab % c->shape.n_experts, c->step);
}

static void shallow_changed(struct sched_cache *c, uint32_t slab, uint32_t before)
{
    struct shallow *f = c->state;
    struct arc *a = &f->arcs[cache_layer_of(c, slab)];
    cache_target_changed(c, &f->target, slab, before);
    if (before == 0)
        arc_arrived(a, slab % c->shape.n_experts, c->step);
    else if (c->resident[slab] == 0)
        arc_left(a, slab % c->shape.n_experts);
}

static bool shallow_victim(const struct sched_cache *c, const struct cache_search *s,
                           uint32_t *slab)
{
    const struct shallow *f = c->state;
    uint32_t layer = cache_layer_over_share(c, s, f->shares);
    const struct arc *a = &f->arcs[layer];
    uint32_t first = cache_slab(c, layer, 0);
    uint8_t list = layer == s->layer            ? arc_victims(a, s->expert)
                   : a->lists.sizes[ARC_T1] > 0 ? ARC_T1
                                                : ARC_T2;
    bool found =
        !f->stays[layer] &&
        (cache_oldest_of_list(c, s, &a->lists, list, first, slab) ||
         cache_oldest_of_list(c, s, &a->lists, list == ARC_T1 ? ARC_T2 : ARC_T1, first, slab));
    return found || (s->demanded && cache_oldest_anywhere(c, s, slab));
}

static bool shallow_wanted(struct sched_cache *c, uint64_t free_segments,
                           const struct cache_search *s, uint32_t *slab)
{
    const struct shallow *f = c->state;
    return cache_target_wanted(c, &f->target, free_segments, s, slab);
}

const struct cache_policy cache_policy_shallow = {
    .keeps_loads = true,
    .init = shallow_init,
    .fini = shallow_fini,
    .activated = shallow_activated,
    .changed = shallow_changed,
    .victim = shallow_victim,
    .wanted = shallow_wanted,
};
