/* What the cache does with its workers' records, and with workers that come and go; see
 * cache_internal.h. slot_server.c checks the records. `consumed` and `place` are taken as they
 * come: a wrong value harms nobody but the worker's own loads. */
#include "cache_internal.h"

#include "base/clock.h"

void cache_worker_joined(void *arg, uint32_t worker)
{
    struct cache *c = arg;
    transfer_scheduler_join(c->transfers, worker, c->server.workers[worker].queue);
}

void cache_release_consumed(struct cache *c)
{
    struct cache_worker *w;
    for (uint32_t i = 0; (w = slot_server_next(&c->server, &i)); i++) {
        struct cache_channel_header *h = w->channel.header;
        /* pairs with the worker's store: it has read the load's segments */
        transfer_scheduler_consumed(c->transfers, i, atomic_load(&h->consumed));
        transfer_scheduler_place(c->transfers, i,
                                 atomic_load_explicit(&h->place, memory_order_acquire));
    }
}

/* Keeps the worker's calibrated costs for the next one. memd does not interpret the words. */
static void store_costs(struct cache *c, const struct cache_worker *w)
{
    struct residency_header *shown = c->residency.base;
    if (!atomic_load_explicit(&w->channel.header->costs_known[0], memory_order_relaxed))
        return;
    for (int i = 0; i < RESIDENCY_COSTS; i++)
        atomic_store_explicit(
            &shown->costs_known[i],
            atomic_load_explicit(&w->channel.header->costs_known[i], memory_order_relaxed),
            memory_order_relaxed);
}

static void update_measuring(struct cache *c)
{
    bool measures = false, computes = false;
    for (uint32_t i = 0; i < CACHE_MAX_WORKERS; i++) {
        const struct cache_worker *w = &c->server.workers[i];
        measures |= w->present && w->use == WORKER_MEASURES;
        computes |= w->present && w->use == WORKER_COMPUTES;
    }
    if (c->measuring == (measures && !computes))
        return;
    if (c->measuring) {
        cache_release_consumed(c); /* a worker that consumes a load does not ring */
        cache_drop_measured(c);
    }
    cache_publish_counts(c);
    c->measuring = measures && !computes;
}

void cache_worker_leaving(void *arg, uint32_t worker)
{
    struct cache *c = arg;
    transfer_scheduler_leave(c->transfers, worker);
    store_costs(c, &c->server.workers[worker]);
}

void cache_worker_left(void *arg)
{
    update_measuring(arg);
}

void cache_worker_forget(void *arg, uint32_t worker)
{
    struct cache *c = arg;
    transfer_scheduler_forget(c->transfers, worker);
}

static void take_costs(struct cache *c, const struct cache_record *r)
{
    struct sched_costs costs = {.load_s = (double)r->costs.load,
                                .load_contended_s = (double)r->costs.load_contended,
                                .device_s = (double)r->costs.device,
                                .device_token_s = (double)r->costs.device_token,
                                .cpu_s = (double)r->costs.cpu,
                                .cpu_token_s = (double)r->costs.cpu_token,
                                .cpu_contended_s = (double)r->costs.cpu_contended,
                                .cpu_contended_token_s = (double)r->costs.cpu_contended_token};
    struct sched_cache_costs cache = {.load_s = costs.load_s,
                                      .compute_s = sched_device_s(&costs, 1),
                                      .attention_s = (double)r->costs.attention,
                                      .head_s = (double)r->costs.head,
                                      .cpu_s = costs.cpu_s,
                                      .cpu_token_s = costs.cpu_token_s};
    c->costs = cache;
    transfer_scheduler_costs(c->transfers, &costs);
    sched_cache_costs(c->policy, &cache);
}

static void take_scores(struct cache *c, const struct cache_record *r)
{
    uint16_t experts[CACHE_RECORD_ENTRIES];
    float scores[CACHE_RECORD_ENTRIES];
    for (uint32_t i = 0; i < r->n_entries; i++) {
        experts[i] = r->entries[i].expert;
        scores[i] = (float)r->entries[i].value / UINT16_MAX;
    }
    sched_cache_scored(c->policy, r->layer, experts, scores, r->n_entries);
}

static void take_use(struct cache *c, struct cache_worker *w, const struct cache_record *r)
{
    enum cache_worker_use use = w->use;
    if (r->kind == CACHE_LOAD)
        use = r->step ? WORKER_COMPUTES : WORKER_MEASURES;
    else if (r->kind == CACHE_ROUTED)
        use = WORKER_COMPUTES;
    else if (r->kind == CACHE_MEASURED)
        use = WORKER_SILENT;
    if (use == w->use)
        return;
    w->use = use;
    update_measuring(c);
}

void cache_take_record(void *arg, uint32_t requester, const struct cache_record *r)
{
    struct cache *c = arg;
    struct cache_worker *w = &c->server.workers[requester];
    take_use(c, w, r);
    uint16_t experts[CACHE_RECORD_ENTRIES], values[CACHE_RECORD_ENTRIES];
    uint64_t now_ns = r->kind == CACHE_LOAD ? clock_ns() : 0;
    if (r->kind == CACHE_MEASURED)
        return;
    if (r->kind == CACHE_COSTS || r->kind == CACHE_SCORES) {
        r->kind == CACHE_COSTS ? take_costs(c, r) : take_scores(c, r);
        return;
    }
    for (uint32_t i = 0; i < r->n_entries; i++) {
        experts[i] = r->entries[i].expert;
        values[i] = r->entries[i].value;
        if (r->kind == CACHE_LOAD)
            transfer_scheduler_load(c->transfers, requester, r->layer, experts[i], values[i],
                                    now_ns);
    }
    if (r->kind == CACHE_ROUTED)
        transfer_scheduler_unused(c->transfers, requester, r->unused != 0);
    if (r->kind == CACHE_ROUTED && cache_worker_routed(w, r, &c->step))
        transfer_scheduler_routed(c->transfers, requester, c->step, r->step << 16 | r->layer,
                                  r->prompt != 0, experts, values, r->n_entries);
    else if (r->kind == CACHE_EXPECTED)
        transfer_scheduler_expected(c->transfers, r->step, r->layer, experts, values, r->n_entries);
    else if (r->kind == CACHE_PREDICTED)
        transfer_scheduler_predicted(c->transfers, requester, r->step, r->layer, experts, values,
                                     r->n_entries);
}
