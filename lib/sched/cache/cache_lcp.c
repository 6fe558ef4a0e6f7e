/* MoEpic's cache (its section 3.3). On a miss the expert of the layer with the lowest priority
 * (lcp_priority.h) is evicted; of equal ones the least recently used. A layer holds V segments of
 * C experts, the first V / C of each: under `uniform` whole experts and an equal share, under
 * `configured` what MoEpic's configuration says (budget_moepic.h), or what a test sets
 * (sched_cache_configure). Free slots and a new configuration are filled with what a layer lacks
 * of its share, the highest priorities first.
 *
 * Departure: MoEpic keeps second halves and prefetches in a buffer of its own, K experts. Here all
 * slots are alike. Under `configured` K experts (at most a quarter of the capacity) are not shared
 * out, and a layer may have them in addition to its share while it is its turn. So the victim is
 * found in this order: the layer itself if it has its share and the buffer, else the layer
 * farthest above its share; in that layer, if it has more experts than C, the lowest of them, else
 * the lowest of those with more than V / C segments.
 *
 * Where all experts of a layer are predicted (gate-scores) the first ones fill the buffer, and the
 * others find no slot: they must not evict the first. */
#include "base/arrays.h"
#include "sched/cache/budget_moepic.h"
#include "sched/cache/cache_internal.h"
#include "sched/cache/lcp_priority.h"

#include <math.h>
#include <string.h>

struct lcp_layer {
    uint64_t share;    /* V, segments */
    uint32_t n_shared; /* C, experts */
    uint32_t quota; /* segments of each: V / C, rounded up; all of them where C follows from whole
                       experts */
    uint32_t n_resident;
};

struct lcp_cache {
    struct lcp_layer *layers;
    struct lcp_priority priority;
    uint64_t buffer; /* segments that belong to no layer's share */
    float *scores;   /* [layer][expert] as predicted for the layer's next turn; 0: not predicted */
    struct budget_moepic *budget; /* NULL: uniform */
    bool nothing_wanted;          /* nothing was wanted, and nothing has changed since */
};

static void set_share(struct sched_cache *c, uint32_t layer, uint64_t segments, uint32_t n_experts)
{
    struct lcp_cache *p = c->state;
    struct lcp_layer *l = &p->layers[layer];
    uint32_t limit = c->limit[layer];
    uint64_t all = (uint64_t)limit * c->shape.n_experts;
    l->share = segments < all ? segments : all;
    uint64_t whole = limit ? (l->share + limit - 1) / limit : 0;
    uint64_t n = n_experts < whole ? whole : n_experts < l->share ? n_experts : l->share;
    l->n_shared = n < c->shape.n_experts ? (uint32_t)n : c->shape.n_experts;
    l->quota = l->n_shared > whole ? (uint32_t)((l->share + l->n_shared - 1) / l->n_shared) : limit;
    p->nothing_wanted = false;
}

static void take_configuration(struct sched_cache *c)
{
    struct lcp_cache *p = c->state;
    for (uint32_t i = c->shape.first_layer; i < c->shape.n_layers; i++)
        set_share(c, i, budget_moepic_segments(p->budget, i), budget_moepic_experts(p->budget, i));
}

static bool configure_by_budget(struct sched_cache *c)
{
    struct lcp_cache *p = c->state;
    uint64_t used = (uint64_t)c->shape.n_used * c->shape.n_segments;
    p->buffer = used < c->shape.capacity / 4 ? used : c->shape.capacity / 4;
    struct budget_moepic_shape shape = {c->shape.n_layers, c->shape.first_layer, c->shape.n_experts,
                                        c->limit, c->shape.capacity - p->buffer};
    p->budget = budget_moepic_new(&shape);
    if (p->budget)
        take_configuration(c);
    return p->budget != NULL;
}

static bool lcp_init(struct sched_cache *c, const struct sched_cache_options *o)
{
    struct lcp_cache *p, new = {0};
    c->state = ARRAYS_NEW(ARRAY(p, 1), ARRAY(new.layers, c->shape.n_layers),
                          ARRAY(new.scores, c->n_slabs));
    if (!c->state)
        return false;
    *p = new;
    if (!lcp_priority_init(&p->priority, c->shape.n_layers, c->shape.n_experts, c->shape.n_used))
        return false;
    if (c->budget == BUDGET_CONFIGURED)
        return configure_by_budget(c);
    for (uint32_t i = c->shape.first_layer; i < c->shape.n_layers; i++)
        set_share(c, i, c->layer_share, 0);
    return true;
}

static void lcp_fini(struct sched_cache *c)
{
    struct lcp_cache *p = c->state;
    budget_moepic_free(p->budget);
    lcp_priority_fini(&p->priority);
}

static void lcp_activated(struct sched_cache *c, uint32_t slab, uint32_t workload)
{
    struct lcp_cache *p = c->state;
    if (workload == 0)
        return;
    uint32_t rank = p->budget ? lcp_priority_rank(&p->priority, slab) : 0;
    if (lcp_priority_activated(&p->priority, slab, workload) && p->budget)
        budget_moepic_activated(p->budget, c->layer, slab % c->shape.n_experts, rank);
    p->nothing_wanted = false;
}

static void lcp_step_over(struct sched_cache *c, uint32_t layer)
{
    struct lcp_cache *p = c->state;
    uint64_t tokens = lcp_priority_step_over(&p->priority, layer);
    memset(p->scores + cache_slab(c, layer, 0), 0, c->shape.n_experts * sizeof *p->scores);
    if (p->budget)
        budget_moepic_step_over(p->budget, layer,
                                tokens < UINT32_MAX ? (uint32_t)tokens : UINT32_MAX);
}

static void lcp_predicted(struct sched_cache *c, uint64_t step, uint32_t slab, uint32_t rank,
                          float probability)
{
    struct lcp_cache *p = c->state;
    p->scores[slab] = probability;
    uint32_t layer = cache_layer_of(c, slab);
    if (p->budget && !budget_moepic_is_predicted(p->budget, layer))
        budget_moepic_predicted(p->budget, layer, slab % c->shape.n_experts,
                                lcp_priority_rank(&p->priority, slab));
}

static void lcp_changed(struct sched_cache *c, uint32_t slab, uint32_t before)
{
    struct lcp_cache *p = c->state;
    struct lcp_layer *l = &p->layers[cache_layer_of(c, slab)];
    l->n_resident += (c->resident[slab] > 0) - (before > 0);
    p->nothing_wanted = false;
}

/* A prefetch does not evict experts of the same prediction. In the paper it goes to a buffer that
 * is full at some time; without a buffer (`uniform`) it may evict only experts with a lower score.
 */
static bool is_no_better(const struct lcp_cache *p, const struct cache_search *s, uint32_t layer,
                         uint32_t slab)
{
    return !s->demanded && s->probability > 0 && layer == s->layer && p->scores[slab] > 0 &&
           (p->budget || p->scores[slab] >= (float)s->probability);
}

/* The evictable expert of the lowest priority with more than so many resident segments. */
static bool lowest_of_layer(const struct sched_cache *c, const struct cache_search *s,
                            uint32_t layer, uint32_t more_than, uint32_t *slab)
{
    const struct lcp_cache *p = c->state;
    const double *priorities = p->priority.values;
    uint32_t first = cache_slab(c, layer, 0);
    bool found = false;
    for (uint32_t i = first; i < first + c->shape.n_experts; i++) {
        if (c->resident[i] <= more_than)
            continue;
        if (is_no_better(p, s, layer, i))
            continue;
        bool lower = !found || priorities[i] < priorities[*slab] ||
                     (priorities[i] == priorities[*slab] && c->last_use[i] < c->last_use[*slab]);
        if (lower && cache_evictable(c, s, i)) {
            *slab = i;
            found = true;
        }
    }
    return found;
}

static uint64_t excess(const struct sched_cache *c, uint32_t layer)
{
    const struct lcp_cache *p = c->state;
    uint64_t share = p->layers[layer].share, resident = c->layer_resident[layer];
    return resident > share ? resident - share : 0;
}

static uint32_t layer_to_shrink(const struct sched_cache *c, const struct cache_search *s)
{
    const struct lcp_cache *p = c->state;
    uint32_t own = s->layer, most = own;
    if (c->layer_resident[own] && c->layer_resident[own] >= p->layers[own].share + p->buffer)
        return own;
    for (uint32_t i = 0; i < c->shape.n_layers; i++)
        if (i != own && excess(c, i) > (most == own ? 0 : excess(c, most)))
            most = i;
    return most;
}

static bool lcp_victim(const struct sched_cache *c, const struct cache_search *s, uint32_t *slab)
{
    const struct lcp_cache *p = c->state;
    uint32_t from = layer_to_shrink(c, s);
    const struct lcp_layer *l = &p->layers[from];
    bool comes = from == s->layer && !c->resident[cache_slab(c, s->layer, s->expert)];
    bool too_many = l->n_resident + comes > l->n_shared;
    if (!too_many && lowest_of_layer(c, s, from, l->quota, slab))
        return true;
    /* Not for a wanted segment: the evicted one would be wanted in turn. */
    bool in_its_share = from == s->layer && c->layer_resident[from] < l->share;
    if ((s->demanded || !in_its_share) && lowest_of_layer(c, s, from, 0, slab))
        return true;
    return s->demanded && cache_oldest_anywhere(c, s, slab);
}

static bool wanted_of_layer(const struct sched_cache *c, const struct cache_search *s,
                            uint32_t layer, uint32_t *slab, bool *blocked)
{
    const struct lcp_cache *p = c->state;
    const struct lcp_layer *l = &p->layers[layer];
    const double *priorities = p->priority.values;
    uint32_t first = cache_slab(c, layer, 0);
    bool found = false;
    for (uint32_t i = first; i < first + c->shape.n_experts; i++) {
        bool lacks = c->resident[i] < l->quota && priorities[i] > -INFINITY &&
                     (c->resident[i] || l->n_resident < l->n_shared);
        if (!lacks || (found && priorities[i] <= priorities[*slab]))
            continue;
        if (!cache_obtainable(c, s, i)) {
            *blocked = true;
            continue;
        }
        *slab = i;
        found = true;
    }
    return found;
}

/* True if there are free slots, or slots that other layers hold beyond share and buffer. */
static bool has_free_slots(const struct sched_cache *c, uint64_t free_segments)
{
    const struct lcp_cache *p = c->state;
    uint64_t sum = 0;
    for (uint32_t i = 0; i < c->shape.n_layers; i++)
        sum += excess(c, i);
    return free_segments || sum > p->buffer;
}

static bool lcp_wanted(struct sched_cache *c, uint64_t free_segments, const struct cache_search *s,
                       uint32_t *slab)
{
    struct lcp_cache *p = c->state;
    if (p->budget && budget_moepic_work(p->budget))
        take_configuration(c);
    if (p->nothing_wanted || !has_free_slots(c, free_segments))
        return false;
    bool blocked = false;
    for (uint32_t i = 1; i <= c->shape.n_layers; i++) {
        uint32_t layer = (c->layer + i) % c->shape.n_layers;
        if (c->layer_resident[layer] < p->layers[layer].share &&
            wanted_of_layer(c, s, layer, slab, &blocked))
            return true;
    }
    p->nothing_wanted = !blocked;
    return false;
}

static void lcp_costs(struct sched_cache *c, const struct sched_cache_costs *costs)
{
    struct lcp_cache *p = c->state;
    if (p->budget)
        budget_moepic_costs(p->budget, costs);
}

static void lcp_configuration(const struct sched_cache *c, uint32_t layer, uint64_t *segments,
                              uint32_t *n_experts)
{
    const struct lcp_cache *p = c->state;
    *segments = p->layers[layer].share;
    *n_experts = p->layers[layer].n_shared;
}

const struct cache_policy cache_policy_lcp = {
    .keeps_loads = true,
    .init = lcp_init,
    .fini = lcp_fini,
    .activated = lcp_activated,
    .step_over = lcp_step_over,
    .changed = lcp_changed,
    .victim = lcp_victim,
    .wanted = lcp_wanted,
    .predicted = lcp_predicted,
    .costs = lcp_costs,
    .configure = set_share,
    .configuration = lcp_configuration,
};
