/* What runs on one trace share; see shared.h. */
#include "bench/replay/shared.h"

#include <stdlib.h>

enum { COUNTED = 16 }; /* capacities whose misses are kept: the budgets of a grid */

struct shared {
    struct shared_key key; /* its trace is NULL: none yet */
    struct routing routing;
    struct future future;
    bool has_future;
    struct recording recordings[PREDICT_KINDS];
    struct {
        uint64_t capacity, misses;
    } counted[COUNTED];
    uint32_t n_counted;
};

struct shared *shared_new(void)
{
    return calloc(1, sizeof(struct shared));
}

static void clear(struct shared *s)
{
    routing_fini(&s->routing);
    future_fini(&s->future);
    for (int i = 0; i < PREDICT_KINDS; i++)
        recording_clear(&s->recordings[i]);
    *s = (struct shared){0};
}

void shared_free(struct shared *s)
{
    if (s)
        clear(s);
    free(s);
}

static bool is_same(const struct shared_key *a, const struct shared_key *b)
{
    const struct steps_options *x = &a->steps, *y = &b->steps;
    return a->trace == b->trace && a->predictors == b->predictors &&
           a->predict_tokens == b->predict_tokens && x->batch == y->batch &&
           x->prompt == y->prompt && x->chunk == y->chunk && x->max_tokens == y->max_tokens;
}

bool shared_use(struct shared *s, const struct shared_key *key)
{
    if (s->key.trace && is_same(&s->key, key))
        return true;
    clear(s);
    if (!routing_init(&s->routing, key->trace, &key->steps))
        return false;
    s->key = *key;
    return true;
}

const struct routing *shared_routing(const struct shared *s)
{
    return &s->routing;
}

struct recording *shared_recording(struct shared *s, enum sched_predictor predictor)
{
    return &s->recordings[predictor];
}

struct future *shared_future(struct shared *s)
{
    if (!s->has_future && !future_init(&s->future, s->key.trace, &s->key.steps)) {
        future_fini(&s->future);
        s->future = (struct future){0};
        return NULL;
    }
    s->has_future = true;
    future_rewind(&s->future);
    return &s->future;
}

bool shared_least_misses(struct shared *s, uint64_t capacity, uint64_t *misses)
{
    uint64_t uses;
    for (uint32_t i = 0; i < s->n_counted; i++)
        if (s->counted[i].capacity == capacity) {
            *misses = s->counted[i].misses;
            return true;
        }
    struct future *f = shared_future(s);
    if (!f || !future_least_misses(f, s->key.trace, &s->key.steps, capacity, misses, &uses))
        return false;
    if (s->n_counted < COUNTED) {
        s->counted[s->n_counted].capacity = capacity;
        s->counted[s->n_counted++].misses = *misses;
    }
    return true;
}
