/* Which segment is copied next; see transfer_internal.h. */
#include "transfer_internal.h"

#include <assert.h>
#include <math.h>
#include <string.h>

/* The requester with the oldest load that is not served; TRANSFER_NOBODY. */
static uint32_t oldest_demand(const struct transfer_scheduler *c)
{
    uint32_t oldest = TRANSFER_NOBODY;
    uint64_t asked_ns = 0;
    for (uint32_t i = 0; i < c->n_requesters; i++) {
        const struct cache_load *l = c->queues[i] ? cache_queue_next(c->queues[i]) : NULL;
        if (l && (oldest == TRANSFER_NOBODY || l->asked_ns < asked_ns)) {
            oldest = i;
            asked_ns = l->asked_ns;
        }
    }
    return oldest;
}

/* The load to be served; marks those that need no copy as served. NULL: none is left. */
static struct cache_load *next_demand(struct transfer_scheduler *c)
{
    for (;;) {
        if (c->serving == TRANSFER_NOBODY) {
            c->serving = oldest_demand(c);
            if (c->serving == TRANSFER_NOBODY)
                return NULL;
            const struct cache_load *l = cache_queue_next(c->queues[c->serving]);
            transfer_expert_at(c, l->layer, l->expert)->pins++;
            c->sparing_since_ns = 0;
        }
        struct cache_queue *q = c->queues[c->serving];
        struct cache_load *l = cache_queue_next(q);
        struct transfer_expert *x = transfer_expert_at(c, l->layer, l->expert);
        if (transfer_there(c, l->layer, l->expert) < l->prefix)
            return l;
        q->served++; /* its pin stays until it is consumed; copies that have begun end */
        x->queued--;
        c->serving = TRANSFER_NOBODY;
    }
}

static enum transfer_next demand_job(struct transfer_scheduler *c, struct cache_load *l,
                                     uint64_t now_ns, struct copy_job *job)
{
    uint32_t segment = transfer_there(c, l->layer, l->expert);
    *job = (struct copy_job){l->layer, l->expert, segment, COPY_DEMANDED, 0};
    if (!transfer_is_obtainable(c, l->layer, l->expert)) {
        c->owner.hint(c->owner.arg, l->layer, l->expert, 1, true);
        return TRANSFER_BLOCKED;
    }
    if (!transfer_evict_for_demand(c, l->layer, l->expert, now_ns))
        return TRANSFER_BLOCKED;
    if (!l->waited_for)
        job->asked_ns = l->asked_ns;
    l->waited_for = true;
    return TRANSFER_JOB;
}

static bool prefetch_job(struct transfer_scheduler *c, uint32_t layer, uint32_t expert,
                         double probability, enum copy_reason reason, struct copy_job *job)
{
    *job = (struct copy_job){layer, expert, transfer_there(c, layer, expert), reason, 0};
    return transfer_evict_for_prefetch(c, layer, expert, probability);
}

static bool not_obtainable(void *arg, uint32_t layer, uint32_t expert)
{
    return !transfer_is_obtainable(arg, layer, expert);
}

/* What the cache policy wants; false: nothing that can be copied. */
static bool ask_policy(struct transfer_scheduler *c, uint64_t spare, sched_blocked *blocked,
                       uint32_t *layer, uint32_t *expert)
{
    return sched_cache_wanted(c->policy, spare, blocked, c, layer, expert) &&
           transfer_may_copy(c, *layer, *expert);
}

static void choose(struct transfer_scheduler *c, uint32_t layer, uint32_t expert, bool exchange)
{
    c->hinting = true;
    c->hint_exchange = exchange;
    c->hint_layer = layer;
    c->hint_expert = expert;
}

static bool chosen_job(struct transfer_scheduler *c, struct copy_job *job)
{
    bool found = prefetch_job(c, c->hint_layer, c->hint_expert, 0, COPY_WANTED, job);
    /* No slot, and none on its way: the policy may choose again. */
    c->hinting = !found && c->owner.retired_slots(c->owner.arg) > 0;
    return found;
}

/* The copy that the cache policy wants. It is kept while a slot is being freed for it and while
 * loads go before it. If the most wanted expert is not obtainable, a fetch hint is sent for it and
 * the next obtainable one is copied. */
static bool wanted_job(struct transfer_scheduler *c, struct copy_job *job)
{
    if (c->hinting && (transfer_is_whole(c, c->hint_layer, c->hint_expert) ||
                       !transfer_is_obtainable(c, c->hint_layer, c->hint_expert)))
        c->hinting = false; /* it was copied for another reason, or left host memory */
    if (!c->hinting) {
        uint32_t n_free = c->owner.free_slots(c->owner.arg), reserve = c->shape.reserve;
        uint64_t spare = n_free > reserve ? n_free - reserve : 0;
        uint32_t layer, expert;
        if (!ask_policy(c, spare, NULL, &layer, &expert))
            return false;
        if (!transfer_is_obtainable(c, layer, expert)) {
            c->owner.hint(c->owner.arg, layer, expert, 0, false);
            if (!ask_policy(c, spare, not_obtainable, &layer, &expert) ||
                !transfer_is_obtainable(c, layer, expert))
                return false;
        }
        choose(c, layer, expert, false);
    }
    return chosen_job(c, job);
}

static bool predicted_job(struct transfer_scheduler *c, struct copy_job *job)
{
    struct cache_prediction p;
    uint32_t requester;
    return prefetch_next(c, &p, &requester) &&
           prefetch_job(c, p.layer, p.expert, p.probability / 65535.0, COPY_PREDICTED, job);
}

/* What a copy costs others: it slows the CPU down, and a load that comes meanwhile waits for half
 * of it. */
static double copy_cost_s(const struct sched_costs *costs)
{
    return fmax(-sched_prefetch_gain(costs, 0), 0) + costs->load_s / 2;
}

/* Steps without predictions. */
#define EXCHANGE_AFTER 4

static bool may_exchange(const struct transfer_scheduler *c)
{
    uint32_t n_layers = 0, n_requesters = 0, n_using = 0;
    if (!c->has_costs || c->hinting || c->n_under_way)
        return false;
    for (uint32_t layer = 0; layer < c->shape.n_layers; layer++)
        n_layers += c->layer_segments[layer] > 0;
    for (uint32_t i = 0; i < c->n_requesters; i++) {
        n_requesters += c->queues[i] != NULL;
        n_using += c->queues[i] && !c->unused[i];
    }
    return n_using && c->unpredicted >= EXCHANGE_AFTER * n_layers * n_requesters;
}

static bool exchange_job(struct transfer_scheduler *c, struct copy_job *job)
{
    uint32_t layer, expert;
    if (!may_exchange(c) || !transfer_find_exchange(c, copy_cost_s(&c->costs), &layer, &expert))
        return false;
    choose(c, layer, expert, true);
    return chosen_job(c, job);
}

/* The policy decides as if the copies under way had ended. */
static void report_under_way(struct transfer_scheduler *c)
{
    for (uint32_t i = 0; i < c->n_under_way; i++) {
        const struct transfer_under_way *u = &c->under_way[i];
        sched_cache_resident(c->policy, u->layer, u->expert,
                             transfer_there(c, u->layer, u->expert));
    }
}

enum transfer_next transfer_scheduler_next_load(struct transfer_scheduler *c, uint64_t now_ns,
                                                struct copy_job *job)
{
    struct cache_prediction p;
    uint32_t requester;
    report_under_way(c);
    transfer_free_ahead(c);
    struct cache_load *l = next_demand(c);
    if (!l)
        return TRANSFER_NOTHING;
    bool outranked =
        c->prefetcher == PREFETCH_VALUE && c->has_costs && !l->outranked &&
        prefetch_next(c, &p, &requester) && requester == c->serving &&
        sched_prefetch_gain(&c->costs, p.probability / 65535.0) > c->costs.load_s &&
        prefetch_job(c, p.layer, p.expert, p.probability / 65535.0, COPY_PREDICTED, job);
    l->outranked |= outranked;
    return outranked ? TRANSFER_JOB : demand_job(c, l, now_ns, job);
}

enum transfer_next transfer_scheduler_next(struct transfer_scheduler *c, uint64_t now_ns,
                                           struct copy_job *job)
{
    enum transfer_next load = transfer_scheduler_next_load(c, now_ns, job);
    if (load != TRANSFER_NOTHING)
        return load;
    bool predicted_first = c->prefetcher == PREFETCH_LOADED;
    if ((predicted_first && predicted_job(c, job)) || wanted_job(c, job) ||
        (!predicted_first && predicted_job(c, job)) || exchange_job(c, job))
        return TRANSFER_JOB;
    if (c->tidying)
        transfer_tidy(c);
    return TRANSFER_NOTHING;
}

void transfer_scheduler_begin(struct transfer_scheduler *c, const struct copy_job *job)
{
    struct transfer_expert *x = transfer_expert_at(c, job->layer, job->expert);
    assert(job->segment == transfer_there(c, job->layer, job->expert));
    assert(c->n_under_way < TRANSFER_MAX_UNDER_WAY);
    c->under_way[c->n_under_way++] = (struct transfer_under_way){job->layer, job->expert};
    x->filling++;
    c->upcoming[job->layer % 2] += job->reason == COPY_PREDICTED;
}

void transfer_scheduler_end(struct transfer_scheduler *c, const struct copy_job *job)
{
    struct transfer_expert *x = transfer_expert_at(c, job->layer, job->expert);
    uint64_t bytes = c->segment_bytes[job->layer];
    assert(x->filling && job->segment == x->resident && c->under_way[0].layer == job->layer &&
           c->under_way[0].expert == job->expert);
    memmove(c->under_way, c->under_way + 1, --c->n_under_way * sizeof *c->under_way);
    *(job->reason == COPY_DEMANDED ? &c->counts.demanded_bytes : &c->counts.prefetched_bytes) +=
        bytes;
    if (job->reason == COPY_PREDICTED) {
        c->counts.predicted_bytes += bytes;
        x->predicted |= (uint16_t)(1u << job->segment);
    }
    x->filling--;
    x->resident++;
    if (job->reason == COPY_WANTED)
        x->transient = 0; /* it belongs to the policy now */
    else if (!c->keeps_loads)
        x->transient++;
    sched_cache_resident(c->policy, job->layer, job->expert,
                         transfer_there(c, job->layer, job->expert));
    if (job->reason == COPY_DEMANDED) /* its requester may have left since the copy began */
        transfer_settle(c, job->layer, job->expert);
}
