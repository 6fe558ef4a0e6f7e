/* The transfer scheduler's reports and requests; see transfer_scheduler.h. */
#include "sched/prefetch/transfer_internal.h"
#include "base/arrays.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

struct transfer_scheduler *transfer_scheduler_new(const struct transfer_shape *shape,
                                                  const struct transfer_owner *owner)
{
    size_t n_layers = shape->n_layers;
    struct transfer_scheduler *c,
        new = {.shape = *shape, .owner = *owner, .serving = TRANSFER_NOBODY};
    if (!ARRAYS_NEW(ARRAY(c, 1), ARRAY(new.layer_segments, n_layers),
                    ARRAY(new.segment_bytes, n_layers),
                    ARRAY(new.experts, n_layers * shape->n_experts)))
        return NULL;
    *c = new;
    c->shape.layer_segments = NULL; /* borrowed */
    c->shape.segment_bytes = NULL;
    for (size_t i = 0; i < n_layers; i++) {
        assert(shape->layer_segments[i] <= TRANSFER_MAX_SEGMENTS);
        c->layer_segments[i] = shape->layer_segments[i];
        c->segment_bytes[i] = shape->segment_bytes[i];
        if (shape->layer_segments[i] > c->most_segments)
            c->most_segments = shape->layer_segments[i];
    }
    return c;
}

void transfer_scheduler_free(struct transfer_scheduler *c)
{
    free(c);
}

void transfer_scheduler_order(struct transfer_scheduler *c, enum sched_prefetcher prefetcher)
{
    c->prefetcher = prefetcher;
}

void transfer_scheduler_use(struct transfer_scheduler *c, struct sched_cache *policy)
{
    c->policy = policy;
    c->keeps_loads = sched_cache_keeps_loads(policy);
    c->hinting = false;
    for (uint32_t layer = 0; layer < c->shape.n_layers; layer++)
        for (uint32_t i = 0; i < c->shape.n_experts && c->layer_segments[layer]; i++) {
            struct transfer_expert *x = transfer_expert_at(c, layer, i);
            if (c->keeps_loads)
                x->transient = 0;
            sched_cache_resident(policy, layer, i, transfer_there(c, layer, i));
        }
}

void transfer_scheduler_tidy(struct transfer_scheduler *c)
{
    c->tidying = !c->keeps_loads;
}

void transfer_scheduler_resize(struct transfer_scheduler *c, uint32_t n_slots, uint32_t reserve)
{
    c->shape.n_slots = n_slots;
    c->shape.reserve = reserve;
    for (uint32_t i = 0; i < TRANSFER_MAX_REQUESTERS; i++) {
        struct cache_queue *q = c->queues[i];
        for (uint64_t n = q ? q->served + 1 : 1; q && n <= q->taken; n++)
            if (cache_queue_load(q, n)->prefix > n_slots)
                cache_queue_load(q, n)->prefix = (uint8_t)n_slots;
    }
}

void transfer_scheduler_costs(struct transfer_scheduler *c, const struct sched_costs *costs)
{
    c->costs = *costs;
    c->has_costs = true;
}

/* ---- Requesters ---- */

void transfer_scheduler_join(struct transfer_scheduler *c, uint32_t requester,
                             struct cache_queue *queue)
{
    assert(requester < TRANSFER_MAX_REQUESTERS && !c->queues[requester]);
    c->queues[requester] = queue;
    if (requester >= c->n_requesters)
        c->n_requesters = requester + 1;
    c->places[requester] = 0;
    c->unused[requester] = false;
    c->routed[requester] = (struct transfer_routed){0};
}

/* The leading segments have been used. */
static void mark_used(struct transfer_scheduler *c, uint32_t layer, uint32_t expert,
                      uint32_t segments)
{
    struct transfer_expert *x = transfer_expert_at(c, layer, expert);
    uint32_t mask = (1u << segments) - 1;
    if (x->predicted & mask)
        c->counts.predicted_used_bytes +=
            (uint64_t)__builtin_popcount(x->predicted & mask) * c->segment_bytes[layer];
    transfer_clear_predicted(c, layer, expert, mask);
    if (x->used < segments) {
        c->counts.used_bytes += (segments - x->used) * c->segment_bytes[layer];
        x->used = (uint8_t)segments;
    }
}

/* The requester is done with its oldest load: it has used it, perhaps before the scheduler noticed
 * that all of it is resident, or has cancelled it. */
static void forget_oldest(struct transfer_scheduler *c, uint32_t requester)
{
    struct cache_queue *q = c->queues[requester];
    const struct cache_load *l = cache_queue_load(q, ++q->consumed);
    struct transfer_expert *x = transfer_expert_at(c, l->layer, l->expert);
    if (l->prefix <= x->resident)
        mark_used(c, l->layer, l->expert, l->prefix);
    bool pinned = true;
    if (q->consumed > q->served) {
        q->served = q->consumed;
        x->queued--;
        pinned = c->serving == requester;
        if (pinned)
            c->serving = TRANSFER_NOBODY;
    }
    x->pins -= pinned;
    /* A step that activates most of a layer needs it no more: its slot may serve the layer's next
     * load. */
    if (2 * c->routed[requester].n_experts > c->shape.n_experts && x->user == requester)
        x->user_place = 0;
    transfer_settle(c, l->layer, l->expert);
}

void transfer_scheduler_consumed(struct transfer_scheduler *c, uint32_t requester, uint64_t loads)
{
    struct cache_queue *q = c->queues[requester];
    while (q->consumed < q->taken && q->consumed < loads)
        forget_oldest(c, requester);
}

void transfer_scheduler_forget(struct transfer_scheduler *c, uint32_t requester)
{
    transfer_scheduler_consumed(c, requester, UINT64_MAX);
    c->queues[requester]->n_predictions = 0;
}

void transfer_scheduler_leave(struct transfer_scheduler *c, uint32_t requester)
{
    transfer_scheduler_forget(c, requester);
    c->queues[requester] = NULL;
    for (size_t i = 0; i < (size_t)c->shape.n_layers * c->shape.n_experts; i++)
        if (c->experts[i].user == requester)
            c->experts[i].user_place =
                0; /* the next requester of this number begins with step 1 again */
}

void transfer_scheduler_routed(struct transfer_scheduler *c, uint32_t requester, uint64_t step,
                               uint64_t place, bool prompt, const uint16_t *experts,
                               const uint16_t *workloads, uint32_t n)
{
    uint32_t layer = (uint32_t)(place & UINT16_MAX);
    struct transfer_routed *routed = &c->routed[requester];
    if (place != routed->place) {
        *routed = (struct transfer_routed){.place = place};
        c->unpredicted++;
    }
    routed->n_experts += n; /* a layer may be reported in parts */
    for (uint32_t i = 0; i < n; i++) {
        struct transfer_expert *x = transfer_expert_at(c, layer, experts[i]);
        x->user = (uint8_t)requester;
        x->user_place = place;
        mark_used(c, layer, experts[i], x->resident);
    }
    if (c->prefetcher == PREFETCH_CLEARED) {
        c->counts.dropped += c->queues[requester]->n_predictions;
        c->queues[requester]->n_predictions = 0;
    }
    sched_cache_routed(c->policy, step, layer, prompt, experts, workloads, n);
}

void transfer_scheduler_unused(struct transfer_scheduler *c, uint32_t requester, bool unused)
{
    c->unused[requester] = unused;
}

/* What exchanges evict, predictions would bring back. */
static void end_exchanges(struct transfer_scheduler *c)
{
    c->unpredicted = 0;
    c->hinting &= !c->hint_exchange;
}

void transfer_scheduler_load(struct transfer_scheduler *c, uint32_t requester, uint32_t layer,
                             uint32_t expert, uint32_t prefix, uint64_t now_ns)
{
    struct transfer_expert *x = transfer_expert_at(c, layer, expert);
    if (prefix > c->shape.n_slots) /* more can never be resident at once */
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
    cache_queue_push(c->queues[requester], &l);
}

void transfer_scheduler_expected(struct transfer_scheduler *c, uint64_t step, uint32_t layer,
                                 const uint16_t *experts, const uint16_t *probabilities, uint32_t n)
{
    float p[CACHE_PREDICTIONS];
    end_exchanges(c);
    n = n < CACHE_PREDICTIONS ? n : CACHE_PREDICTIONS;
    for (uint32_t i = 0; i < n; i++)
        p[i] = (float)probabilities[i] / UINT16_MAX;
    sched_cache_predicted(c->policy, step, layer, experts, p, n);
}

void transfer_scheduler_predicted(struct transfer_scheduler *c, uint32_t requester, uint64_t step,
                                  uint32_t layer, const uint16_t *experts,
                                  const uint16_t *probabilities, uint32_t n)
{
    end_exchanges(c);
    for (uint32_t i = 0; i < n; i++) {
        struct cache_prediction new = {.deadline = step << 16 | layer,
                                       .layer = (uint16_t)layer,
                                       .expert = experts[i],
                                       .probability = probabilities[i]};
        if (!transfer_is_whole(c, layer, experts[i]))
            c->counts.dropped += cache_queue_predict(c->queues[requester], &new);
    }
}

/* Unused predictions for the layer free their buffers. */
static void turn_over(struct transfer_scheduler *c, uint32_t layer)
{
    for (uint32_t i = 0; i < c->shape.n_experts && c->layer_segments[layer]; i++)
        if (transfer_expert_at(c, layer, i)->predicted) {
            transfer_clear_predicted(c, layer, i, UINT16_MAX);
            transfer_settle(c, layer, i);
        }
}

static uint64_t turn_of(const struct transfer_scheduler *c, uint64_t place)
{
    uint64_t layer = place & UINT16_MAX;
    return (place >> 16) * c->shape.n_layers + (layer < c->shape.n_layers ? layer : 0);
}

void transfer_scheduler_place(struct transfer_scheduler *c, uint32_t requester, uint64_t place)
{
    uint64_t before = turn_of(c, c->places[requester]), now = turn_of(c, place);
    c->places[requester] = place;
    if (c->prefetcher != PREFETCH_ROTATING)
        return;
    for (uint32_t i = 0; i < c->shape.n_layers && before + i < now; i++)
        turn_over(c, (uint32_t)((before + i) % c->shape.n_layers));
}

/* ---- State ---- */

uint32_t transfer_scheduler_resident(const struct transfer_scheduler *c, uint32_t layer,
                                     uint32_t expert)
{
    return transfer_expert_at(c, layer, expert)->resident;
}

uint32_t transfer_scheduler_filling(const struct transfer_scheduler *c, uint32_t layer,
                                    uint32_t expert)
{
    return transfer_expert_at(c, layer, expert)->filling;
}

bool transfer_scheduler_outstanding(const struct transfer_scheduler *c)
{
    for (uint32_t i = 0; i < TRANSFER_MAX_REQUESTERS; i++)
        if (c->queues[i] && c->queues[i]->consumed < c->queues[i]->served)
            return true;
    return false;
}

const struct transfer_counts *transfer_scheduler_counts(const struct transfer_scheduler *c)
{
    return &c->counts;
}
