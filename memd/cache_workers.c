/* The cache's workers: attaching, what they write, leaving; see cache_internal.h.
 *
 * What a worker writes is input. Its records are copied out of the ring and every number is checked; one that makes no
 * sense ends its asking: it is marked broken, its loads and pins are forgotten, its ring is not read again. Its epoch
 * counts until the kernel says that it is gone, for it may be reading still. `consumed` and `place` are taken as they
 * come: whatever they say harms nobody but the worker's own loads.
 */
#include "cache_internal.h"

#include "base/clock.h"

/* A worker's records are taken at most so many at once: one that writes as fast as they are read stops nobody. */
enum { RECORDS_AT_ONCE = 128 };

enum error_code cache_add_worker(struct cache *c, uint64_t key, const struct shm *region,
                                 struct error *e)
{
    struct cache_worker new;
    enum error_code code = cache_worker_open(&new, key, region, c->map.header->generation, e);
    if (code)
        return code;
    pthread_mutex_lock(&c->lock);
    new.reader = cache_slots_add_reader(&c->slots, &new.channel.header->epoch);
    if (new.reader >= 0) { /* as many places as readers, and as askers */
        c->workers[new.reader] = new;
        sched_copies_join(c->copies, (uint32_t) new.reader, new.queue);
    }
    pthread_mutex_unlock(&c->lock);
    if (new.reader < 0) {
        cache_worker_close(&new);
        return error_set(e, ERROR_LIMIT, "the cache serves %d workers already", CACHE_MAX_WORKERS);
    }
    doorbell_ring(&c->bell);
    return ERROR_OK;
}

void cache_remove_worker(struct cache *c, uint64_t key)
{
    pthread_mutex_lock(&c->lock);
    cache_workers_remove(c->workers, key);
    pthread_mutex_unlock(&c->lock);
    doorbell_ring(&c->bell);
}

void cache_release_consumed(struct cache *c)
{
    for (uint32_t i = 0; i < CACHE_MAX_WORKERS; i++) {
        struct cache_worker *w = &c->workers[i];
        if (!w->present || w->broken)
            continue;
        struct cache_channel_header *h = w->channel.header;
        /* pairs with the worker's store: what it read of the load's segments is read */
        sched_copies_consumed(c->copies, i, atomic_load(&h->consumed));
        sched_copies_place(c->copies, i, atomic_load_explicit(&h->place, memory_order_acquire));
    }
}

/* For the next worker. Words: what they mean is the workers' own affair. */
static void keep_learnt(struct cache *c, const struct cache_worker *w)
{
    struct residency_header *shown = c->residency.base;
    if (!atomic_load_explicit(&w->channel.header->learnt[0], memory_order_relaxed))
        return;
    for (int i = 0; i < RESIDENCY_LEARNT; i++)
        atomic_store_explicit(
            &shown->learnt[i],
            atomic_load_explicit(&w->channel.header->learnt[i], memory_order_relaxed),
            memory_order_relaxed);
}

static void look_who_measures(struct cache *c)
{
    bool measures = false, computes = false;
    for (uint32_t i = 0; i < CACHE_MAX_WORKERS; i++) {
        measures |= c->workers[i].present && c->workers[i].use == WORKER_MEASURES;
        computes |= c->workers[i].present && c->workers[i].use == WORKER_COMPUTES;
    }
    if (c->measuring == (measures && !computes))
        return;
    if (c->measuring) {
        cache_release_consumed(c); /* nobody rings for that */
        cache_drop_measured(c);
    }
    cache_publish_counts(c);
    c->measuring = measures && !computes;
}

void cache_forget_leaving(struct cache *c)
{
    for (uint32_t i = 0; i < CACHE_MAX_WORKERS; i++) {
        struct cache_worker *w = &c->workers[i];
        if (!w->present || !w->leaving)
            continue;
        sched_copies_leave(c->copies, i);
        keep_learnt(c, w);
        cache_slots_remove_reader(&c->slots, w->reader);
        cache_worker_close(w);
        look_who_measures(c);
    }
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
    sched_copies_costs(c->copies, &costs);
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
    look_who_measures(c);
}

static void take_record(struct cache *c, uint32_t asker, const struct cache_record *r)
{
    struct cache_worker *w = &c->workers[asker];
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
            sched_copies_load(c->copies, asker, r->layer, experts[i], values[i], now_ns);
    }
    if (r->kind == CACHE_ROUTED && cache_worker_routed(w, r, &c->step))
        sched_copies_routed(c->copies, asker, c->step, r->step << 16 | r->layer, experts, values,
                            r->n_entries);
    else if (r->kind == CACHE_EXPECTED)
        sched_copies_expected(c->copies, r->step, r->layer, experts, values, r->n_entries);
    else if (r->kind == CACHE_PREDICTED)
        sched_copies_predicted(c->copies, asker, r->step, r->layer, experts, values, r->n_entries);
}

static void give_up_on(struct cache *c, uint32_t asker, const char *what)
{
    cache_worker_break(&c->workers[asker], what);
    sched_copies_forget(c->copies, asker);
}

void cache_take_records(struct cache *c)
{
    for (uint32_t i = 0; i < CACHE_MAX_WORKERS; i++) {
        struct cache_worker *w = &c->workers[i];
        if (!w->present || w->broken || w->leaving)
            continue;
        struct cache_record r;
        const char *what = NULL;
        for (int n = 0;
             n < RECORDS_AT_ONCE && cache_worker_take(w, &w->channel.requests, CACHE_LOAD,
                                                      c->map.slabs, c->table.n_layers, &r, &what);
             n++)
            take_record(c, i, &r);
        if (what)
            give_up_on(c, i, what);
    }
}
