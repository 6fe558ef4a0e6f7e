/* What askers say to the copy engine; see copies.h. */
#include "copies_internal.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

struct sched_copies *sched_copies_new(const struct copies_shape *shape,
                                      const struct copies_owner *owner)
{
    size_t n_layers = shape->n_layers;
    struct sched_copies *c = calloc(1, sizeof *c);
    if (!c)
        return NULL;
    c->shape = *shape;
    c->shape.layer_segments = NULL;
    c->shape.segment_bytes = NULL;
    c->owner = *owner;
    c->serving = COPIES_NOBODY;
    c->layer_segments = malloc(n_layers ? n_layers : 1);
    c->segment_bytes = calloc(n_layers ? n_layers : 1, sizeof *c->segment_bytes);
    c->experts = calloc(n_layers * shape->n_experts + 1, sizeof *c->experts);
    if (!c->layer_segments || !c->segment_bytes || !c->experts) {
        sched_copies_free(c);
        return NULL;
    }
    for (size_t i = 0; i < n_layers; i++) {
        assert(shape->layer_segments[i] <= COPIES_MAX_SEGMENTS);
        c->layer_segments[i] = shape->layer_segments[i];
        c->segment_bytes[i] = shape->segment_bytes[i];
    }
    return c;
}

void sched_copies_free(struct sched_copies *c)
{
    if (!c)
        return;
    free(c->layer_segments);
    free(c->segment_bytes);
    free(c->experts);
    free(c);
}

void sched_copies_order(struct sched_copies *c, enum sched_prefetcher prefetcher)
{
    c->prefetcher = prefetcher;
}

void sched_copies_use(struct sched_copies *c, struct sched_cache *policy)
{
    c->policy = policy;
    c->keeps_loads = sched_cache_keeps_loads(policy);
    c->wishing = false;
    for (uint32_t layer = 0; layer < c->shape.n_layers; layer++)
        for (uint32_t i = 0; i < c->shape.n_experts && c->layer_segments[layer]; i++) {
            struct copies_expert *x = copies_expert_at(c, layer, i);
            if (c->keeps_loads)
                x->transient = 0;
            sched_cache_resident(policy, layer, i, x->resident);
        }
}

void sched_copies_tidy(struct sched_copies *c)
{
    c->tidying = !c->keeps_loads;
}

void sched_copies_resize(struct sched_copies *c, uint32_t n_slots, uint32_t reserve)
{
    c->shape.n_slots = n_slots;
    c->shape.reserve = reserve;
    for (uint32_t i = 0; i < COPIES_MAX_ASKERS; i++) {
        struct cache_queue *q = c->queues[i];
        for (uint64_t n = q ? q->served + 1 : 1; q && n <= q->taken; n++)
            if (cache_queue_load(q, n)->prefix > n_slots)
                cache_queue_load(q, n)->prefix = (uint8_t)n_slots;
    }
}

void sched_copies_costs(struct sched_copies *c, const struct sched_costs *costs)
{
    c->costs = *costs;
    c->has_costs = true;
}

/* ---- Askers ---- */

void sched_copies_join(struct sched_copies *c, uint32_t asker, struct cache_queue *queue)
{
    assert(asker < COPIES_MAX_ASKERS && !c->queues[asker]);
    c->queues[asker] = queue;
    c->places[asker] = 0;
}

void copies_clear_predicted(struct sched_copies *c, uint32_t layer, uint32_t expert, uint32_t mask)
{
    struct copies_expert *x = copies_expert_at(c, layer, expert);
    c->ahead[layer % 2] -= (uint32_t)__builtin_popcount(x->predicted & mask);
    x->predicted &= (uint16_t)~mask;
}

/* The leading segments have served. */
static void mark_used(struct sched_copies *c, uint32_t layer, uint32_t expert, uint32_t segments)
{
    struct copies_expert *x = copies_expert_at(c, layer, expert);
    uint32_t mask = (1u << segments) - 1;
    c->counts.predicted_used_bytes +=
        (uint64_t)__builtin_popcount(x->predicted & mask) * c->segment_bytes[layer];
    copies_clear_predicted(c, layer, expert, mask);
    if (x->used < segments) {
        c->counts.used_bytes += (segments - x->used) * c->segment_bytes[layer];
        x->used = (uint8_t)segments;
    }
}

/* The asker is done with its oldest load: it has used it, perhaps before it was noticed here that all of it is there,
 * or has given it up. */
static void forget_oldest(struct sched_copies *c, uint32_t asker)
{
    struct cache_queue *q = c->queues[asker];
    const struct cache_load *l = cache_queue_load(q, ++q->consumed);
    struct copies_expert *x = copies_expert_at(c, l->layer, l->expert);
    if (l->prefix <= x->resident)
        mark_used(c, l->layer, l->expert, l->prefix);
    bool pinned = true;
    if (q->consumed > q->served) {
        q->served = q->consumed;
        x->queued--;
        pinned = c->serving == asker;
        if (pinned)
            c->serving = COPIES_NOBODY;
    }
    x->pins -= pinned;
    copies_settle(c, l->layer, l->expert);
}

void sched_copies_consumed(struct sched_copies *c, uint32_t asker, uint64_t loads)
{
    struct cache_queue *q = c->queues[asker];
    while (q->consumed < q->taken && q->consumed < loads)
        forget_oldest(c, asker);
}

void sched_copies_forget(struct sched_copies *c, uint32_t asker)
{
    sched_copies_consumed(c, asker, UINT64_MAX);
    c->queues[asker]->n_predictions = 0;
}

void sched_copies_leave(struct sched_copies *c, uint32_t asker)
{
    sched_copies_forget(c, asker);
    c->queues[asker] = NULL;
    for (size_t i = 0; i < (size_t)c->shape.n_layers * c->shape.n_experts; i++)
        if (c->experts[i].user == asker)
            c->experts[i].user_place = 0; /* its successor begins with step 1 again */
}

void sched_copies_routed(struct sched_copies *c, uint32_t asker, uint64_t step, uint64_t place,
                         const uint16_t *experts, const uint16_t *workloads, uint32_t n)
{
    uint32_t layer = (uint32_t)(place & UINT16_MAX);
    for (uint32_t i = 0; i < n; i++) {
        struct copies_expert *x = copies_expert_at(c, layer, experts[i]);
        x->user = (uint8_t)asker;
        x->user_place = place;
        mark_used(c, layer, experts[i], x->resident);
    }
    if (c->prefetcher == PREFETCH_CLEARED) {
        c->counts.dropped += c->queues[asker]->n_predictions;
        c->queues[asker]->n_predictions = 0;
    }
    sched_cache_routed(c->policy, step, layer, experts, workloads, n);
}

void sched_copies_load(struct sched_copies *c, uint32_t asker, uint32_t layer, uint32_t expert,
                       uint32_t prefix, uint64_t now_ns)
{
    struct copies_expert *x = copies_expert_at(c, layer, expert);
    if (prefix > c->shape.n_slots) /* more will never be there at once */
        prefix = c->shape.n_slots;
    struct cache_load l = {.layer = (uint16_t)layer,
                           .expert = (uint16_t)expert,
                           .prefix = (uint8_t)prefix,
                           .asked_ns = now_ns};
    if (x->resident < prefix && (x->queued || x->filling))
        c->counts.merged++;
    if (x->resident < prefix)
        c->counts.asked_bytes += (prefix - x->resident) * c->segment_bytes[layer];
    x->queued++;
    cache_queue_push(c->queues[asker], &l);
}

void sched_copies_expected(struct sched_copies *c, uint64_t step, uint32_t layer,
                           const uint16_t *experts, const uint16_t *probabilities, uint32_t n)
{
    float p[CACHE_PREDICTIONS] = {0};
    n = n < CACHE_PREDICTIONS ? n : CACHE_PREDICTIONS;
    for (uint32_t i = 0; i < n; i++)
        p[i] = (float)probabilities[i] / UINT16_MAX;
    sched_cache_predicted(c->policy, step, layer, experts, p, n);
}

void sched_copies_predicted(struct sched_copies *c, uint32_t asker, uint64_t step, uint32_t layer,
                            const uint16_t *experts, const uint16_t *probabilities, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        struct cache_prediction new = {.deadline = step << 16 | layer,
                                       .layer = (uint16_t)layer,
                                       .expert = experts[i],
                                       .probability = probabilities[i]};
        if (!copies_is_whole(c, layer, experts[i]))
            c->counts.dropped += cache_queue_predict(c->queues[asker], &new);
    }
}

/* What was predicted for the layer and has not served gives up its buffer. */
static void turn_over(struct sched_copies *c, uint32_t layer)
{
    for (uint32_t i = 0; i < c->shape.n_experts && c->layer_segments[layer]; i++)
        if (copies_expert_at(c, layer, i)->predicted) {
            copies_clear_predicted(c, layer, i, UINT16_MAX);
            copies_settle(c, layer, i);
        }
}

static uint64_t turn_of(const struct sched_copies *c, uint64_t place)
{
    uint64_t layer = place & UINT16_MAX;
    return (place >> 16) * c->shape.n_layers + (layer < c->shape.n_layers ? layer : 0);
}

void sched_copies_place(struct sched_copies *c, uint32_t asker, uint64_t place)
{
    uint64_t before = turn_of(c, c->places[asker]), now = turn_of(c, place);
    c->places[asker] = place;
    if (c->prefetcher != PREFETCH_ROTATING)
        return;
    for (uint32_t i = 0; i < c->shape.n_layers && before + i < now; i++)
        turn_over(c, (uint32_t)((before + i) % c->shape.n_layers));
}

/* ---- State ---- */

uint32_t sched_copies_resident(const struct sched_copies *c, uint32_t layer, uint32_t expert)
{
    return copies_expert_at(c, layer, expert)->resident;
}

bool sched_copies_filling(const struct sched_copies *c, uint32_t layer, uint32_t expert)
{
    return copies_expert_at(c, layer, expert)->filling;
}

bool sched_copies_outstanding(const struct sched_copies *c)
{
    for (uint32_t i = 0; i < COPIES_MAX_ASKERS; i++)
        if (c->queues[i] && c->queues[i]->consumed < c->queues[i]->served)
            return true;
    return false;
}

const struct copies_counts *sched_copies_counts(const struct sched_copies *c)
{
    return &c->counts;
}
