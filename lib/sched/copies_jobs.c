/* Which segment is copied next; see copies_internal.h. */
#include "copies_internal.h"

static bool is_obtainable(const struct sched_copies *c, uint32_t layer, uint32_t expert)
{
    return !c->owner.obtainable || c->owner.obtainable(c->owner.arg, layer, expert);
}

/* The asker with the oldest load that is not served; COPIES_NOBODY. */
static uint32_t oldest_demand(const struct sched_copies *c)
{
    uint32_t oldest = COPIES_NOBODY;
    uint64_t asked_ns = 0;
    for (uint32_t i = 0; i < COPIES_MAX_ASKERS; i++) {
        const struct cache_load *l = c->queues[i] ? cache_queue_next(c->queues[i]) : NULL;
        if (l && (oldest == COPIES_NOBODY || l->asked_ns < asked_ns)) {
            oldest = i;
            asked_ns = l->asked_ns;
        }
    }
    return oldest;
}

/* The load that is being served, after those that need no copy are; NULL: none is left. */
static struct cache_load *next_demand(struct sched_copies *c)
{
    for (;;) {
        if (c->serving == COPIES_NOBODY) {
            c->serving = oldest_demand(c);
            if (c->serving == COPIES_NOBODY)
                return NULL;
            const struct cache_load *l = cache_queue_next(c->queues[c->serving]);
            copies_expert_at(c, l->layer, l->expert)->pins++;
            c->sparing_since_ns = 0;
        }
        struct cache_queue *q = c->queues[c->serving];
        struct cache_load *l = cache_queue_next(q);
        struct copies_expert *x = copies_expert_at(c, l->layer, l->expert);
        if (x->resident < l->prefix)
            return l;
        q->served++; /* its pin stays until it is consumed */
        x->queued--;
        c->serving = COPIES_NOBODY;
    }
}

static enum copies_next demand_job(struct sched_copies *c, struct cache_load *l, uint64_t now_ns,
                                   struct copy_job *job)
{
    uint32_t resident = copies_expert_at(c, l->layer, l->expert)->resident;
    *job = (struct copy_job){l->layer, l->expert, resident, COPY_DEMANDED, 0};
    if (!is_obtainable(c, l->layer, l->expert)) {
        c->owner.wish(c->owner.arg, l->layer, l->expert, 1, true);
        return COPIES_BLOCKED;
    }
    if (!copies_room_for_demand(c, l->layer, l->expert, now_ns))
        return COPIES_BLOCKED;
    if (!l->waited_for)
        job->asked_ns = l->asked_ns;
    l->waited_for = true;
    return COPIES_JOB;
}

static bool prefetch_job(struct sched_copies *c, uint32_t layer, uint32_t expert,
                         double probability, enum copy_reason reason, struct copy_job *job)
{
    *job =
        (struct copy_job){layer, expert, copies_expert_at(c, layer, expert)->resident, reason, 0};
    return copies_room_for_prefetch(c, layer, expert, probability);
}

static bool not_obtainable(void *arg, uint32_t layer, uint32_t expert)
{
    return !is_obtainable(arg, layer, expert);
}

/* What the policy asks for by itself; false: nothing that makes sense. */
static bool ask_policy(struct sched_copies *c, uint64_t spare, sched_blocked *blocked,
                       uint32_t *layer, uint32_t *expert)
{
    return sched_cache_wanted(c->policy, spare, blocked, c, layer, expert) &&
           *layer < c->shape.n_layers && *expert < c->shape.n_experts &&
           !copies_is_whole(c, *layer, *expert);
}

/* What the policy wants by itself. A wish is kept while room is being made for it, and while loads go before it. Where
 * what it wants most cannot be had, that is wished for, and the next that can is copied. */
static bool wanted_job(struct sched_copies *c, struct copy_job *job)
{
    if (c->wishing && (copies_is_whole(c, c->wish_layer, c->wish_expert) ||
                       !is_obtainable(c, c->wish_layer, c->wish_expert)))
        c->wishing = false; /* it has come by another way, or left host memory */
    if (!c->wishing) {
        uint32_t n_free = c->owner.free_slots(c->owner.arg), reserve = c->shape.reserve;
        uint64_t spare = n_free > reserve ? n_free - reserve : 0;
        uint32_t layer, expert;
        if (!ask_policy(c, spare, NULL, &layer, &expert))
            return false;
        if (!is_obtainable(c, layer, expert)) {
            c->owner.wish(c->owner.arg, layer, expert, 0, false);
            if (!ask_policy(c, spare, not_obtainable, &layer, &expert) ||
                !is_obtainable(c, layer, expert))
                return false;
        }
        c->wishing = true;
        c->wish_layer = layer;
        c->wish_expert = expert;
    }
    bool found = prefetch_job(c, c->wish_layer, c->wish_expert, 0, COPY_WANTED, job);
    /* No room, and none on its way: the policy may think of something else. */
    c->wishing = !found && c->owner.retired_slots(c->owner.arg) > 0;
    return found;
}

static bool predicted_job(struct sched_copies *c, struct copy_job *job)
{
    struct cache_prediction p;
    uint32_t asker;
    return prefetch_next(c, &p, &asker) &&
           prefetch_job(c, p.layer, p.expert, p.probability / 65535.0, COPY_PREDICTED, job);
}

enum copies_next sched_copies_next(struct sched_copies *c, uint64_t now_ns, struct copy_job *job)
{
    struct cache_prediction p;
    uint32_t asker;
    struct cache_load *l = next_demand(c);
    if (l) {
        bool outranked =
            c->prefetcher == PREFETCH_VALUE && c->has_costs && !l->outranked &&
            prefetch_next(c, &p, &asker) && asker == c->serving &&
            sched_prefetch_gain(&c->costs, p.probability / 65535.0) > c->costs.load_s &&
            prefetch_job(c, p.layer, p.expert, p.probability / 65535.0, COPY_PREDICTED, job);
        l->outranked |= outranked;
        return outranked ? COPIES_JOB : demand_job(c, l, now_ns, job);
    }
    bool predicted_first = c->prefetcher == PREFETCH_LOADED;
    if ((predicted_first && predicted_job(c, job)) || wanted_job(c, job) ||
        (!predicted_first && predicted_job(c, job)))
        return COPIES_JOB;
    if (c->tidying)
        copies_tidy(c);
    return COPIES_NOTHING;
}

void sched_copies_begin(struct sched_copies *c, const struct copy_job *job)
{
    copies_expert_at(c, job->layer, job->expert)->filling = true;
}

void sched_copies_end(struct sched_copies *c, const struct copy_job *job)
{
    struct copies_expert *x = copies_expert_at(c, job->layer, job->expert);
    uint64_t bytes = c->segment_bytes[job->layer];
    *(job->reason == COPY_DEMANDED ? &c->counts.demanded_bytes : &c->counts.prefetched_bytes) +=
        bytes;
    if (job->reason == COPY_PREDICTED) {
        c->counts.predicted_bytes += bytes;
        x->predicted |= (uint16_t)(1u << job->segment);
        c->ahead[job->layer % 2]++;
    }
    x->filling = false;
    x->resident++;
    if (job->reason == COPY_WANTED)
        x->transient = 0; /* it is the policy's own now */
    else if (!c->keeps_loads)
        x->transient++;
    sched_cache_resident(c->policy, job->layer, job->expert, x->resident);
}
