/* The host tier's thread and its interface; see tier.h and tier_internal.h.
 *
 * The lanes ring the server's bell when they have read an expert. The expert cache's thread takes
 * this lock while it holds its own (tier_pin); the tier's thread never takes the cache's lock.
 */
#include "tier_internal.h"

#include "base/arrays.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/machine_memory.h"
#include "exec/numa.h"
#include "memd/load/pages_log.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* -- the thread -- */

static void count_busy(struct tier *t, int32_t change)
{
    uint64_t now = clock_ns();
    if (t->reading)
        t->busy_ns += now - t->busy_since_ns;
    t->busy_since_ns = now;
    t->reading += (uint32_t)change;
}

static void take_results(struct tier *t)
{
    struct disk_result result;
    while (disk_reader_take(t->reader, &result)) {
        count_busy(t, -1);
        tier_finish_job(t, &result);
    }
}

/* Gives jobs to idle lanes. Returns after how many nanoseconds to look again at the latest. */
static uint64_t give_out_jobs(struct tier *t)
{
    uint64_t timeout_ns = UINT64_MAX; /* a lane will ring */
    struct tier_job job;
    while (disk_reader_idle(t->reader) > 0 && tier_next_job(t, &job, &timeout_ns)) {
        uint8_t *to = (uint8_t *)t->region.base + t->table.header->slots_offset +
                      job.slot * t->table.slot_bytes;
        count_busy(t, 1);
        disk_reader_submit(t->reader, job.layer, job.expert, to,
                           t->paged[job.slot] ? 0 : t->table.slot_bytes);
        t->paged[job.slot] = true;
        timeout_ns = UINT64_MAX;
    }
    return timeout_ns;
}

static void *disk_thread(void *arg)
{
    struct tier *t = arg;
    struct slot_server *server = &t->server;
    pthread_setname_np(pthread_self(), "memd/disk");
    pthread_mutex_lock(&server->lock);
    while (!server->stop) {
        slot_server_forget_leaving(server);
        slot_server_watch(server);
        take_results(t);
        tier_release_fetched(t); /* which frees the queue for records */
        slot_server_take_records(server);
        /* again: the worker may have counted a fetch before its record was taken */
        tier_release_fetched(t);
        cache_slots_reclaim(&server->slots);
        slot_server_report_broken(server);
        slot_server_sleep(server, give_out_jobs(t));
    }
    pthread_mutex_unlock(&server->lock);
    return NULL;
}

/* -- making it -- */

/* Over the memory nodes: any expert may come into any slot. */
static void spread(void *memory, uint64_t bytes)
{
    static struct topology t; /* large */
    topology_read(&t);
    numa_spread(&t, "the host tier", memory, bytes);
}

static enum error_code make_region(struct tier *t, struct error *e)
{
    enum error_code code =
        shm_create_large("moed-host-tier", t->plan->bytes, &t->region, &t->pages, e);
    if (code)
        return code;
    uint8_t *base = t->region.base;
    spread(base, t->region.bytes);
    host_tier_init(base, t->n_layers, t->n_experts, t->plan->slot_bytes, t->plan->n_slots,
                   t->options.generation);
    code = host_tier_attach(&t->table, base, t->region.bytes, e);
    return code ? code : shm_seal_writes(&t->region, e); /* this mapping stays writable */
}

static struct sched_cache *new_policy(struct tier *t)
{
    uint32_t first = t->n_layers;
    while (first > 0 && t->pool->slabs[first - 1].n_experts)
        first--;
    struct sched_cache_shape shape = {.n_layers = t->n_layers,
                                      .n_experts = t->n_experts,
                                      .n_segments = 1, /* an expert is in memory or not */
                                      .first_layer = first,
                                      .n_used = t->pool->header.params.router.n_used,
                                      .capacity = t->server.slots.n - t->reserve};
    struct sched_cache_options options = {0};
    return sched_cache_new(CACHE_VALUE, &shape, &options);
}

/* As many slots as a token may miss in a layer, but at most an eighth of all. */
static uint32_t reserve_of(const struct tier *t)
{
    uint32_t most = t->plan->n_slots / 8, layer = t->pool->header.params.router.n_used;
    return layer < most ? layer : most;
}

static enum error_code make_tables(struct tier *t, struct error *e)
{
    size_t n = (size_t)t->n_layers * t->n_experts;
    t->memory = ARRAYS_NEW(ARRAY(t->experts, n), ARRAY(t->owner, t->plan->n_slots),
                           ARRAY(t->paged, t->plan->n_slots));
    if (!t->memory)
        return error_set(e, ERROR_MEMORY, "no memory for the table of experts");
    for (size_t i = 0; i < n; i++)
        t->experts[i].slot = TIER_NO_SLOT;
    memset(t->owner, 0xff, t->plan->n_slots * sizeof *t->owner);
    for (uint32_t i = 0; i < t->n_layers; i++)
        t->total += t->pool->slabs[i].n_experts;
    t->reserve = reserve_of(t);
    uint64_t fill = t->plan->n_slots - t->reserve;
    t->fill_total = fill < t->total ? fill : t->total;
    enum error_code code = cache_slots_init(&t->server.slots, NULL, NULL, t->plan->slot_bytes,
                                            t->plan->n_slots, t->plan->n_slots, e);
    if (!code && !(t->policy = new_policy(t)))
        code = error_set(e, ERROR_MEMORY, "no memory for the tier's policy");
    return code;
}

static enum error_code make(struct tier *t, const struct gguf *g, struct error *e)
{
    enum error_code code = make_region(t, e);
    if (!code)
        code = make_tables(t, e);
    const struct disk_reader_options reader = {.g = g,
                                               .plan = t->pool,
                                               .bell = &t->server.bell,
                                               .pieces = code ? NULL : &t->table.header->pieces,
                                               .changed = t->options.file_changed,
                                               .changed_arg = t->options.file_changed_arg};
    if (!code)
        code = disk_reader_new(&reader, &t->reader, e);
    if (code)
        return code;
    t->started_ns = clock_ns();
    return slot_server_start(&t->server, "memd/disk", disk_thread, e);
}

enum error_code tier_new(const struct gguf *g, const struct pool_plan *pool,
                         const struct tier_options *options, const struct tier_counters *counters,
                         struct tier **out, struct error *e)
{
    struct tier *t = aligned_alloc(_Alignof(struct tier), sizeof *t);
    if (!t)
        return error_set(e, ERROR_MEMORY, "no memory for the host tier");
    *t = (struct tier){.pool = pool,
                       .plan = options->plan,
                       .options = *options,
                       .counters = *counters,
                       .n_layers = pool->header.n_layers,
                       .n_experts = pool->header.params.router.n_experts};
    t->region.fd = -1;
    struct slot_owner owner = {.name = "tier",
                               .arg = t,
                               .asks = CACHE_FETCH,
                               .pool_generation = options->generation,
                               .slabs = pool->slabs,
                               .n_layers = t->n_layers,
                               .take = tier_take_record,
                               .forget = tier_forget_requests,
                               .leaving = tier_forget_requests,
                               .broken = options->worker_broken,
                               .broken_arg = options->worker_broken_arg};
    slot_server_init(&t->server, &owner);
    pthread_cond_init(&t->filled, NULL);
    enum error_code code = make(t, g, e);
    if (code) {
        tier_free(t);
        return code;
    }
    log_info("tier: %" PRIu32 " of %" PRIu64 " experts in memory, %.2f MB each, %" PRIu32
             " of them kept free for reads",
             t->server.slots.n, t->total, (double)t->plan->slot_bytes * 1e-6, t->reserve);
    *out = t;
    return ERROR_OK;
}

void tier_free(struct tier *t)
{
    if (!t)
        return;
    slot_server_stop(&t->server);
    disk_reader_free(t->reader);
    sched_cache_free(t->policy);
    free(t->memory);
    shm_close(&t->region);
    pthread_cond_destroy(&t->filled);
    slot_server_fini(&t->server);
    free(t);
}

/* -- the interface -- */

/* The pages of the slots that the first filling did not use, so that memory is short now and not in
 * a request. No worker is there yet. */
static enum error_code make_other_pages(struct tier *t, struct error *e)
{
    enum error_code code = ERROR_OK;
    for (uint32_t slot = 0; slot < t->plan->n_slots && !code; slot++) {
        uint8_t *at =
            (uint8_t *)t->region.base + t->table.header->slots_offset + slot * t->table.slot_bytes;
        if (!t->paged[slot])
            code = memory_populate(at, t->table.slot_bytes, e);
        t->paged[slot] = true;
    }
    return code;
}

enum error_code tier_fill(struct tier *t,
                          void (*progress)(void *arg, uint64_t done, uint64_t total), void *arg,
                          struct error *e)
{
    uint64_t percent = 0;
    pthread_mutex_lock(&t->server.lock);
    while (t->fill_done < t->fill_total && !t->fill_code) {
        pthread_cond_wait(&t->filled, &t->server.lock);
        uint64_t done = t->fill_done, now = done * 100 / t->fill_total;
        if (now == percent || !progress)
            continue;
        percent = now;
        pthread_mutex_unlock(&t->server.lock);
        progress(arg, done * t->plan->slot_bytes, t->fill_total * t->plan->slot_bytes);
        pthread_mutex_lock(&t->server.lock);
    }
    enum error_code code = t->fill_code;
    if (code)
        *e = t->fill_error;
    else
        code = make_other_pages(t, e);
    pthread_mutex_unlock(&t->server.lock);
    if (!code)
        pages_log("tier", &t->region, t->pages);
    return code;
}

enum error_code tier_add_worker(struct tier *t, uint64_t key, const struct shm *region,
                                struct error *e)
{
    return slot_server_add_worker(&t->server, key, region, e);
}

void tier_remove_worker(struct tier *t, uint64_t key)
{
    slot_server_remove_worker(&t->server, key);
}

const struct shm *tier_region(const struct tier *t)
{
    return &t->region;
}

const uint8_t *tier_pin(struct tier *t, uint32_t layer, uint32_t expert)
{
    const uint8_t *slab = NULL;
    pthread_mutex_lock(&t->server.lock);
    if (tier_restore(t, layer, expert)) {
        struct tier_expert *x = tier_expert_at(t, layer, expert);
        x->pins++;
        slab = host_tier_slot(&t->table, x->slot);
    }
    pthread_mutex_unlock(&t->server.lock);
    return slab;
}

bool tier_holds(struct tier *t, uint32_t layer, uint32_t expert)
{
    pthread_mutex_lock(&t->server.lock);
    enum slot_state where = tier_where(t, layer, expert);
    pthread_mutex_unlock(&t->server.lock);
    return where == SLOT_RESIDENT || where == SLOT_RETIRED; /* tier_restore */
}

void tier_unpin(struct tier *t, uint32_t layer, uint32_t expert, bool copied)
{
    pthread_mutex_lock(&t->server.lock);
    struct tier_expert *x = tier_expert_at(t, layer, expert);
    assert(x->pins > 0);
    x->pins--;
    if (copied)
        tier_mark_used(t, layer, expert);
    pthread_mutex_unlock(&t->server.lock);
}

/* The place of the expert's hint, or of a new one: in place of the oldest if there are too many. */
static struct tier_hint *place_of_hint(struct tier *t, uint32_t layer, uint32_t expert)
{
    struct tier_hint *oldest = t->hints;
    for (uint32_t i = 0; i < t->n_hints; i++) {
        struct tier_hint *w = &t->hints[i];
        if (w->layer == layer && w->expert == expert)
            return w;
        if (w->step < oldest->step)
            oldest = w;
    }
    if (t->n_hints < TIER_HINTS)
        oldest = &t->hints[t->n_hints++];
    *oldest = (struct tier_hint){.layer = TIER_NO_LAYER};
    return oldest;
}

void tier_hint(struct tier *t, uint32_t layer, uint32_t expert, double probability, bool urgent)
{
    bool rings = false;
    pthread_mutex_lock(&t->server.lock);
    if (tier_restore(t, layer, expert)) { /* it has come since the engine looked */
        tier_wake_hinter(t);
    } else {
        struct tier_hint *w = place_of_hint(t, layer, expert);
        rings = w->layer != layer || urgent > w->urgent;
        *w = (struct tier_hint){layer, expert, probability, urgent, t->step};
    }
    pthread_mutex_unlock(&t->server.lock);
    if (rings)
        doorbell_ring(&t->server.bell);
}

void tier_add_device(struct tier *t, const struct tier_device *device)
{
    pthread_mutex_lock(&t->server.lock);
    assert(t->n_devices < DEVICES_MAX);
    t->devices[t->n_devices++] = *device;
    pthread_mutex_unlock(&t->server.lock);
}

void tier_remove_device(struct tier *t, const void *wake_arg)
{
    pthread_mutex_lock(&t->server.lock);
    for (unsigned i = 0; i < t->n_devices; i++)
        if (t->devices[i].wake_arg == wake_arg)
            t->devices[i--] = t->devices[--t->n_devices];
    pthread_mutex_unlock(&t->server.lock);
}

void tier_state(struct tier *t, struct tier_state *out)
{
    pthread_mutex_lock(&t->server.lock);
    count_busy(t, 0);
    *out = (struct tier_state){
        .experts = t->total,
        .since_ns = clock_ns() - t->started_ns,
        .busy_ns = t->busy_ns,
    };
    cache_slots_state(&t->server.slots, &out->slots);
    pthread_mutex_unlock(&t->server.lock);
}
