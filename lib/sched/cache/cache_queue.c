/* A worker's loads and predictions; see cache_queue.h. */
#include "sched/cache/cache_queue.h"

#include <assert.h>

void cache_queue_push(struct cache_queue *q, const struct cache_load *load)
{
    assert(cache_queue_has_capacity(q, 1));
    *cache_queue_load(q, ++q->taken) = *load;
}

static uint32_t key_of(const struct cache_prediction *p)
{
    return ((uint32_t)p->deadline * 0x9e3779b1u) ^ p->expert;
}

/* The prediction of this expert and deadline; n_predictions: none. A queue has a few hundred
 * predictions, so the keys are compared first, in a loop that a compiler can vectorise. */
static uint32_t find(const struct cache_queue *q, const struct cache_prediction *p)
{
    uint32_t key = key_of(p), n_equal = 0, i = q->n_predictions;
    for (uint32_t k = 0; k < q->n_predictions; k++)
        n_equal += q->keys[k] == key;
    if (n_equal)
        for (i = 0; i < q->n_predictions; i++) {
            const struct cache_prediction *old = &q->predictions[i];
            if (old->expert == p->expert && old->layer == p->layer && old->deadline == p->deadline)
                break;
        }
    return i;
}

static void put(struct cache_queue *q, uint32_t i, const struct cache_prediction *p)
{
    q->predictions[i] = *p;
    q->keys[i] = key_of(p);
}

bool cache_queue_predict(struct cache_queue *q, const struct cache_prediction *p)
{
    uint32_t i = find(q, p), least = 0;
    struct cache_prediction new = *p;
    new.order = q->n_predicted++;
    if (i < q->n_predictions) {
        q->predictions[i].probability = p->probability;
        return false;
    }
    if (q->n_predictions < CACHE_PREDICTIONS) {
        put(q, q->n_predictions++, &new);
        return false;
    }
    for (uint32_t k = 1; k < q->n_predictions; k++)
        if (q->predictions[k].probability < q->predictions[least].probability)
            least = k;
    if (q->predictions[least].probability < p->probability)
        put(q, least, &new);
    return true;
}

void cache_queue_forget(struct cache_queue *q, uint32_t prediction)
{
    uint32_t last = --q->n_predictions;
    q->predictions[prediction] = q->predictions[last];
    q->keys[prediction] = q->keys[last];
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
