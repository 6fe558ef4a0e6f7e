/* Cache policies: the entry point, and the state that all have in common. Each policy has a file
 * of its own, cache_*.c. */
#include "base/arrays.h"
#include "sched/cache/cache_internal.h"

#include <assert.h>
#include <stdlib.h>

#define POLICY_OF(kind, name) [kind] = &cache_policy_##name,
static const struct cache_policy *const policies[] = {CACHE_POLICIES(POLICY_OF)};
#undef POLICY_OF
_Static_assert(sizeof policies / sizeof *policies == CACHE_KINDS, "each kind has its policy");

bool sched_cache_takes(enum sched_cache_kind kind, enum sched_budget budget)
{
    switch (kind) {
    case CACHE_NONE: /* keeps nothing, so there is nothing to share */
    case CACHE_STATIC:
    case CACHE_LRU:
    case CACHE_BELADY:
        return budget == BUDGET_GLOBAL || budget == BUDGET_UNIFORM;
    case CACHE_LCP:
        return budget == BUDGET_UNIFORM || budget == BUDGET_CONFIGURED;
    case CACHE_LAYERWISE:
    case CACHE_MAP_FREQUENCY:
    case CACHE_VALUE:
    case CACHE_ARC:
    case CACHE_LRFU:
    case CACHE_TINYLFU:
    case CACHE_LEAST_STALE:
        return budget == BUDGET_GLOBAL;
    default:
        return budget == BUDGET_UNIFORM;
    }
}

enum sched_budget sched_cache_budget(enum sched_cache_kind kind)
{
    return sched_cache_takes(kind, BUDGET_GLOBAL) ? BUDGET_GLOBAL : BUDGET_UNIFORM;
}

static void set_capacity(struct sched_cache *c, uint64_t capacity)
{
    c->shape.capacity = capacity;
    c->layer_share = c->expert_layers ? capacity / c->expert_layers : 0;
}

/* Everything but the policy and its state. */
static struct sched_cache *allocate(const struct sched_cache_shape *shape)
{
    struct sched_cache *c, new = {.shape = *shape};
    size_t n_slabs = (size_t)shape->n_layers * shape->n_experts;
    if (!ARRAYS_NEW(ARRAY(c, 1), ARRAY(new.resident, n_slabs), ARRAY(new.limit, shape->n_layers),
                    ARRAY(new.last_use, n_slabs), ARRAY(new.layer_resident, shape->n_layers)))
        return NULL;
    *c = new;
    c->shape.layer_segments = NULL; /* borrowed */
    c->n_slabs = (uint32_t)n_slabs;
    c->expert_layers =
        shape->n_layers > shape->first_layer ? shape->n_layers - shape->first_layer : 0;
    set_capacity(c, shape->capacity);
    for (uint32_t layer = shape->first_layer; layer < shape->n_layers; layer++)
        c->limit[layer] =
            shape->layer_segments ? shape->layer_segments[layer] : (uint8_t)shape->n_segments;
    return c;
}

struct sched_cache *sched_cache_new(enum sched_cache_kind kind,
                                    const struct sched_cache_shape *shape,
                                    const struct sched_cache_options *options)
{
    enum sched_budget budget = options ? options->budget : sched_cache_budget(kind);
    assert(sched_cache_takes(kind, budget));
    struct sched_cache *c = allocate(shape);
    if (!c)
        return NULL;
    c->kind = kind;
    c->budget = budget;
    c->policy =
        kind == CACHE_LRU && budget == BUDGET_UNIFORM ? &cache_policy_lru_layer : policies[kind];
    if (!c->policy->init || c->policy->init(c, options))
        return c;
    sched_cache_free(c);
    return NULL;
}

void sched_cache_free(struct sched_cache *c)
{
    if (!c)
        return;
    if (c->policy->fini && c->state)
        c->policy->fini(c);
    free(c->state);
    free(c);
}

bool sched_cache_resize(struct sched_cache *c, uint64_t capacity)
{
    if (!c->policy->resizes)
        return false;
    set_capacity(c, capacity);
    if (c->policy->resized)
        c->policy->resized(c);
    return true;
}

static bool has_experts(const struct sched_cache *c, uint32_t layer)
{
    return layer >= c->shape.first_layer && layer < c->shape.n_layers;
}

void sched_cache_routed(struct sched_cache *c, uint64_t step, uint32_t layer, bool prompt,
                        const uint16_t *experts, const uint16_t *workloads, uint32_t n)
{
    if (!has_experts(c, layer))
        return;
    if (c->reported && (step != c->step || layer != c->layer) && c->policy->step_over)
        c->policy->step_over(c, c->layer);
    c->reported = true;
    c->step = step;
    c->layer = layer;
    c->prompt = prompt;
    for (uint32_t i = 0; i < n; i++) {
        if (experts[i] >= c->shape.n_experts)
            continue;
        uint32_t slab = cache_slab(c, layer, experts[i]);
        c->last_use[slab] = ++c->clock;
        if (c->policy->activated)
            c->policy->activated(c, slab, workloads[i]);
    }
}

uint32_t sched_cache_reads(enum sched_cache_kind kind)
{
    const struct cache_policy *p = policies[kind];
    return (p->scored ? CACHE_READS_SCORES : 0) | (p->predicted ? CACHE_READS_PREDICTIONS : 0);
}

void sched_cache_scored(struct sched_cache *c, uint32_t layer, const uint16_t *experts,
                        const float *scores, uint32_t n)
{
    for (uint32_t i = 0; i < n && has_experts(c, layer) && c->policy->scored; i++)
        if (experts[i] < c->shape.n_experts)
            c->policy->scored(c, cache_slab(c, layer, experts[i]), scores[i]);
}

void sched_cache_predicted(struct sched_cache *c, uint64_t step, uint32_t layer,
                           const uint16_t *experts, const float *probabilities, uint32_t n)
{
    for (uint32_t i = 0; i < n && has_experts(c, layer) && c->policy->predicted; i++)
        if (experts[i] < c->shape.n_experts)
            c->policy->predicted(c, step, cache_slab(c, layer, experts[i]), i, probabilities[i]);
}

void sched_cache_costs(struct sched_cache *c, const struct sched_cache_costs *costs)
{
    if (c->policy->costs)
        c->policy->costs(c, costs);
}

void sched_cache_configure(struct sched_cache *c, uint32_t layer, uint64_t segments,
                           uint32_t n_experts)
{
    if (has_experts(c, layer) && c->policy->configure)
        c->policy->configure(c, layer, segments, n_experts);
}

bool sched_cache_configuration(const struct sched_cache *c, uint32_t layer, uint64_t *segments,
                               uint32_t *n_experts)
{
    if (!has_experts(c, layer) || !c->policy->configuration)
        return false;
    c->policy->configuration(c, layer, segments, n_experts);
    return true;
}

void sched_cache_resident(struct sched_cache *c, uint32_t layer, uint32_t expert, uint32_t segments)
{
    if (!has_experts(c, layer) || expert >= c->shape.n_experts)
        return;
    uint32_t slab = cache_slab(c, layer, expert), before = c->resident[slab];
    if (segments > c->limit[layer])
        segments = c->limit[layer];
    if (segments == before)
        return;
    if (before == 0) /* an arrival counts as a use, else a prefetch would be the first to go */
        c->last_use[slab] = ++c->clock;
    c->resident[slab] = (uint8_t)segments;
    c->layer_resident[layer] += segments - before;
    if (c->policy->changed)
        c->policy->changed(c, slab, before);
}

uint32_t sched_cache_segments(const struct sched_cache *c, uint32_t layer, uint32_t expert)
{
    return has_experts(c, layer) && expert < c->shape.n_experts
               ? c->resident[cache_slab(c, layer, expert)]
               : 0;
}

bool sched_cache_keeps_loads(const struct sched_cache *c)
{
    return c->policy->keeps_loads;
}

/* Where an answer is. Returns true. */
static bool tell(const struct sched_cache *c, uint32_t slab, uint32_t *layer, uint32_t *expert)
{
    *layer = cache_layer_of(c, slab);
    *expert = slab % c->shape.n_experts;
    return true;
}

bool sched_cache_victim(const struct sched_cache *c, uint32_t layer, uint32_t expert, bool demanded,
                        double probability, sched_blocked *blocked, void *arg,
                        uint32_t *victim_layer, uint32_t *victim_expert)
{
    struct cache_search s = {layer, expert, demanded, probability, blocked, NULL, arg};
    uint32_t slab;
    return has_experts(c, layer) && expert < c->shape.n_experts &&
           c->policy->victim(c, &s, &slab) && tell(c, slab, victim_layer, victim_expert);
}

bool sched_cache_least(const struct sched_cache *c, sched_blocked *blocked, void *arg,
                       uint32_t *layer, uint32_t *expert)
{
    struct cache_search s = {.layer = UINT32_MAX, .blocked = blocked, .arg = arg};
    uint32_t slab;
    return c->policy->least && c->policy->least(c, &s, &slab) && tell(c, slab, layer, expert);
}

bool sched_cache_passed(const struct sched_cache *c, sched_blocked *blocked,
                        sched_blocked *unobtainable, void *arg, uint32_t *layer, uint32_t *expert)
{
    struct cache_search s = {
        .layer = UINT32_MAX, .blocked = blocked, .unobtainable = unobtainable, .arg = arg};
    uint32_t slab;
    return c->policy->passed && c->policy->passed(c, &s, &slab) && tell(c, slab, layer, expert);
}

bool sched_cache_exchange(const struct sched_cache *c, double copy_s, sched_blocked *blocked,
                          sched_blocked *unobtainable, void *arg, uint32_t *layer, uint32_t *expert)
{
    struct cache_search s = {
        .layer = UINT32_MAX, .blocked = blocked, .unobtainable = unobtainable, .arg = arg};
    uint32_t slab;
    return c->policy->exchange && c->policy->exchange(c, copy_s, &s, &slab) &&
           tell(c, slab, layer, expert);
}

bool sched_cache_wanted(struct sched_cache *c, uint64_t free_segments, sched_blocked *blocked,
                        void *arg, uint32_t *layer, uint32_t *expert)
{
    struct cache_search s = {.blocked = blocked, .arg = arg};
    uint32_t slab;
    return c->policy->wanted && c->policy->wanted(c, free_segments, &s, &slab) &&
           tell(c, slab, layer, expert);
}
