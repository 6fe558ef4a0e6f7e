/* The order in which predictions are copied; see transfer_scheduler.h. Sources and departures
 * (probable, and selective, which is ours, take the most probable first):
 *
 * - chunked: ProMoE, section on the prefetcher. An expert moves in chunks, here segments; tasks
 *   wait in a queue of low priority. Right after a layer's gate has spoken its speculative tasks
 *   are dropped ("early preemption": "clears any remaining low-priority speculative prefetch tasks
 *   for that layer").
 * - cleared: the same with what ProMoE's Algorithm 2 says instead: "first clears any existing
 *   low-priority tasks from the queue (Line 12)", those of all layers.
 * - loaded: DALI, 4.2: "the top-k high-workload experts are selected for prefetching". A
 *   prediction comes in that order (predict_residual.c), and its owner offers the first k. They go
 *   before the cache's swaps: "a separate work stream is launched" for them with the layer's
 *   computation (section 4, at figure 9), while the cache is updated "after processing a window".
 * - rotating: PreScope, 4.4: "one layer ahead": the prefetch buffers are two groups that take
 *   turns by layer. A group holds as many segments as are kept free for demanded loads (the paper
 *   gives no number).
 * - urgent: FineMoE: priority p / (l - l_now), in floating point.
 * - value (ours): the seconds that a copy is expected to save, one currency with demanded loads. A
 *   load saves the time of its copy, a prediction what sched_prefetch_gain returns. A prediction
 *   of the same requester may go before a load, once. No preset uses it: where it acts, on
 *   machines whose CPU is slower than the link, it was slower than loads first. */
#include "transfer_internal.h"

/* Layers from the requester's place to the prediction's, across the end of a step. */
static double layers_until(const struct transfer_scheduler *c, uint64_t place, uint64_t deadline)
{
    double now = (double)(place >> 16) * c->shape.n_layers + (double)(place & UINT16_MAX);
    double then = (double)(deadline >> 16) * c->shape.n_layers + (double)(deadline & UINT16_MAX);
    return then > now ? then - now : 1;
}

static bool is_before(const struct transfer_scheduler *c, const struct cache_prediction *a,
                      const struct cache_prediction *b, uint64_t place)
{
    switch (c->prefetcher) {
    case PREFETCH_CHUNKED:
    case PREFETCH_CLEARED:
        return a->deadline != b->deadline ? a->deadline < b->deadline : a->order < b->order;
    case PREFETCH_ROTATING:
    case PREFETCH_LOADED:
        return a->order < b->order;
    case PREFETCH_URGENT: {
        double x = a->probability / layers_until(c, place, a->deadline);
        double y = b->probability / layers_until(c, place, b->deadline);
        return x != y ? x > y : a->order < b->order;
    }
    case PREFETCH_VALUE:
    case PREFETCH_PROBABLE:
    case PREFETCH_SELECTIVE:
        break;
    }
    return a->probability != b->probability ? a->probability > b->probability : a->order < b->order;
}

/* The same for the best of two requesters. Their steps and orders are not comparable: the nearer
 * layer goes first, then the more probable. */
static bool goes_before(const struct transfer_scheduler *c, const struct cache_prediction *a,
                        uint64_t place_a, const struct cache_prediction *b, uint64_t place_b)
{
    double near_a = layers_until(c, place_a, a->deadline),
           near_b = layers_until(c, place_b, b->deadline);
    switch (c->prefetcher) {
    case PREFETCH_URGENT:
        return a->probability / near_a > b->probability / near_b;
    case PREFETCH_CHUNKED:
    case PREFETCH_CLEARED:
    case PREFETCH_ROTATING:
    case PREFETCH_LOADED:
        if (near_a != near_b)
            return near_a < near_b;
        break;
    case PREFETCH_VALUE:
    case PREFETCH_PROBABLE:
    case PREFETCH_SELECTIVE:
        break;
    }
    return a->probability > b->probability;
}

static bool is_allowed(const struct transfer_scheduler *c, const struct cache_prediction *p)
{
    uint32_t most = c->shape.reserve ? c->shape.reserve : c->shape.n_slots;
    return c->prefetcher != PREFETCH_ROTATING || c->upcoming[p->layer % 2] < most;
}

/* The best prediction of one requester among those that are obtainable, or among those that are
 * not. */
static const struct cache_prediction *best_of(const struct transfer_scheduler *c,
                                              uint32_t requester, bool obtainable)
{
    const struct cache_queue *q = c->queues[requester];
    const struct cache_prediction *best = NULL;
    for (uint32_t i = 0; i < q->n_predictions; i++) {
        const struct cache_prediction *p = &q->predictions[i];
        if (is_allowed(c, p) && (!best || is_before(c, p, best, c->places[requester])) &&
            (!c->owner.obtainable ||
             c->owner.obtainable(c->owner.arg, p->layer, p->expert) == obtainable))
            best = p;
    }
    return best;
}

static void drop_passed(struct transfer_scheduler *c, uint32_t requester)
{
    struct cache_queue *q = c->queues[requester];
    c->counts.dropped += cache_queue_drop_passed(q, c->places[requester] + 1);
    for (uint32_t i = q->n_predictions; i-- > 0;)
        if (transfer_is_whole(c, q->predictions[i].layer, q->predictions[i].expert))
            cache_queue_forget(q, i);
}

bool prefetch_next(struct transfer_scheduler *c, struct cache_prediction *out, uint32_t *requester)
{
    const struct cache_prediction *best = NULL;
    for (uint32_t i = 0; i < c->n_requesters; i++) {
        if (!c->queues[i])
            continue;
        drop_passed(c, i);
        const struct cache_prediction *p = best_of(c, i, true);
        if (p && (!best || goes_before(c, p, c->places[i], best, c->places[*requester]))) {
            best = p;
            *requester = i;
        }
        const struct cache_prediction *away = c->owner.obtainable ? best_of(c, i, false) : NULL;
        if (away)
            c->owner.hint(c->owner.arg, away->layer, away->expert, away->probability / 65535.0,
                          false);
    }
    if (best)
        *out = *best;
    return best != NULL;
}
