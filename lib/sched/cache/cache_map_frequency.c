/* FineMoE's cache (its section 4.5). The eviction priority of an expert is 1 / (p freq), p its
 * probability in the searched map, freq its cache visits. So the expert with the least p freq of
 * all layers goes, "less frequently hit and lower probabilities of being activated" first; no
 * recency. Of equal ones the lower number goes. A heap holds the resident ones in order.
 *
 * Departures: floating point, where the paper's code truncates the priority to an integer. An
 * expert that is not in the layer's last prediction has p = FLOOR, less than any map lists: it
 * goes before those that are, unless it is as many times as frequent; with 0 all of them would be
 * equal. A layer that was never predicted has FLOOR throughout and is a plain LFU. freq counts the
 * steps that activated the expert, plus 1: else an unused prefetch would go first, whatever its
 * probability. */
#include "base/arrays.h"
#include "sched/cache/cache_internal.h"
#include "sched/cache/heap.h"

#include <math.h>

#define FLOOR 1e-4f

struct map_cache {
    double *values;       /* [layer][expert] p freq */
    uint32_t *visits;     /* [layer][expert] */
    float *probabilities; /* [layer][expert] */
    uint64_t *steps;      /* [layer] of the last prediction */
    struct heap resident;
};

static bool map_init(struct sched_cache *c, const struct sched_cache_options *o)
{
    struct map_cache *m, new = {0};
    c->state =
        ARRAYS_NEW(ARRAY(m, 1), ARRAY(new.values, c->n_slabs), ARRAY(new.visits, c->n_slabs),
                   ARRAY(new.probabilities, c->n_slabs), ARRAY(new.steps, c->shape.n_layers));
    if (!c->state)
        return false;
    *m = new;
    if (!heap_init(&m->resident, m->values, c->n_slabs, false))
        return false;
    for (uint32_t i = 0; i < c->n_slabs; i++) {
        m->probabilities[i] = FLOOR;
        m->values[i] = (double)FLOOR;
    }
    return true;
}

static void map_fini(struct sched_cache *c)
{
    struct map_cache *m = c->state;
    heap_fini(&m->resident);
}

static void revalue(struct map_cache *m, uint32_t slab)
{
    double value = (double)m->probabilities[slab] * (1.0 + m->visits[slab]);
    if (value == m->values[slab])
        return;
    m->values[slab] = value;
    if (heap_has(&m->resident, slab))
        heap_moved(&m->resident, slab);
}

static void map_activated(struct sched_cache *c, uint32_t slab, uint32_t workload)
{
    struct map_cache *m = c->state;
    if (m->visits[slab] < UINT32_MAX)
        m->visits[slab]++;
    revalue(m, slab);
}

static void map_predicted(struct sched_cache *c, uint64_t step, uint32_t slab, uint32_t rank,
                          float probability)
{
    struct map_cache *m = c->state;
    uint32_t layer = cache_layer_of(c, slab), first = cache_slab(c, layer, 0);
    if (m->steps[layer] != step) { /* another map replaces the last one */
        m->steps[layer] = step;
        for (uint32_t i = first; i < first + c->shape.n_experts; i++) {
            m->probabilities[i] = FLOOR;
            revalue(m, i);
        }
    }
    m->probabilities[slab] = probability > FLOOR ? fminf(probability, 1) : FLOOR;
    revalue(m, slab);
}

static void map_changed(struct sched_cache *c, uint32_t slab, uint32_t before)
{
    struct map_cache *m = c->state;
    if (before == 0)
        heap_insert(&m->resident, slab);
    else if (c->resident[slab] == 0)
        heap_remove(&m->resident, slab);
}

static bool map_victim(const struct sched_cache *c, const struct cache_search *s, uint32_t *slab)
{
    const struct map_cache *m = c->state;
    return cache_first_of_heap(c, s, &m->resident, slab);
}

const struct cache_policy cache_policy_map_frequency = {
    .keeps_loads = true,
    .resizes = true,
    .init = map_init,
    .fini = map_fini,
    .activated = map_activated,
    .changed = map_changed,
    .victim = map_victim,
    .predicted = map_predicted,
};
