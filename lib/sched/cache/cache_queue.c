/* A worker's loads and predictions; see cache_queue.h. */
#include "sched/cache/cache_queue.h"

#include <assert.h>

void cache_queue_push(struct cache_queue *q, const struct cache_load *load)
{
    assert(cache_queue_has_capacity(q, 1));
    *cache_queue_load(q, ++q->taken) = *load;
}

bool cache_queue_predict(struct cache_queue *q, const struct cache_prediction *p)
{
    uint32_t least = 0;
    struct cache_prediction new = *p;
    new.order = q->n_predicted++;
    for (uint32_t i = 0; i < q->n_predictions; i++) {
        struct cache_prediction *old = &q->predictions[i];
        if (old->layer == p->layer && old->expert == p->expert && old->deadline == p->deadline) {
            old->probability = p->probability;
            return false;
        }
        if (old->probability < q->predictions[least].probability)
            least = i;
    }
    if (q->n_predictions < CACHE_PREDICTIONS) {
        q->predictions[q->n_predictions++] = new;
        return false;
    }
    if (q->predictions[least].probability < p->probability)
        q->predictions[least] = new;
    return true;
}

void cache_queue_forget(struct cache_queue *q, uint32_t prediction)
{
    q->predictions[prediction] = q->predictions[--q->n_predictions];
}

uint32_t cache_queue_drop_passed(struct cache_queue *q, uint64_t place)
{
    uint32_t n = 0;
    for (uint32_t i = q->n_predictions; i-- > 0;)
        if (q->predictions[i].deadline < place) {
            cache_queue_forget(q, i);
            n++;
        }
    return n;
}
