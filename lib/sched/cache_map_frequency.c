/* FineMoE's cache (its section 4.5): the eviction priority of an expert is 1 / (p freq), p its probability in the searched map,
 * freq its cache visits, so the one with the least p freq of all layers goes, "less frequently hit and lower probabilities of
 * being activated" first; no recency. In floating point: its own code truncates the priority to an integer.
 *
 * p is what the last prediction of the layer said; an expert that is not in it has FLOOR, which is less than what any map
 * lists, so it goes before those that are unless it is as many times as frequent; 0 would make all of them equal. A layer that
 * was never predicted has it throughout, and is a plain LFU. freq counts the steps that activated the expert, and 1 more, or what was
 * prefetched and has never been used would go first, whatever its probability. Of equal ones the lower number goes.
 *
 * A heap holds the resident ones in order. */
#include "sched/cache_internal.h"
#include "sched/heap.h"

#include <math.h>
#include <stdlib.h>

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
    struct map_cache *m = c->state = calloc(1, sizeof *m);
    if (!m)
        return false;
    m->values = calloc((size_t)c->n_slabs + 1, sizeof *m->values);
    m->visits = calloc((size_t)c->n_slabs + 1, sizeof *m->visits);
    m->probabilities = calloc((size_t)c->n_slabs + 1, sizeof *m->probabilities);
    m->steps = calloc((size_t)c->shape.n_layers + 1, sizeof *m->steps);
    if (!m->values || !m->visits || !m->probabilities || !m->steps ||
        !heap_init(&m->resident, m->values, c->n_slabs, false))
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
    free(m->values);
    free(m->visits);
    free(m->probabilities);
    free(m->steps);
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
    if (m->steps[layer] != step) { /* another map: what the last one said is over */
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
    .init = map_init,
    .fini = map_fini,
    .activated = map_activated,
    .changed = map_changed,
    .victim = map_victim,
    .predicted = map_predicted,
};
