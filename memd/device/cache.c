/* The expert cache's engine thread and its interface; see cache.h and cache_internal.h.
 *
 * The rest of memd calls in under the lock and changes little: it adds and marks workers, and
 * replaces the policy. Only the engine thread unmaps a worker's region, because it may be sleeping
 * on a doorbell there. */
#include "cache_internal.h"

#include "base/clock.h"
#include "base/log.h"

#include <inttypes.h>
#include <stdlib.h>

/* How often a resize looks again. A worker does not ring when it has followed the arena, nor when
 * it has given up a part of its KV cache, which may take as long as its requests. */
#define RESIZE_NS    1000000u
#define RESIZE_KV_NS 20000000u

/* The time until a resize, or what is held, has to be looked at. */
static uint64_t resize_timeout(const struct cache *c, uint64_t timeout_ns)
{
    uint64_t most = !c->aim.busy                      ? UINT64_MAX
                    : c->aim.waits == CACHE_RESIZE_KV ? RESIZE_KV_NS
                                                      : RESIZE_NS;
    uint64_t hold_ns = cache_hold_left_ns(c);
    most = hold_ns < most ? hold_ns : most;
    return timeout_ns < most ? timeout_ns : most;
}

/* The device has failed; device_lost ends this process. */
static void lose_device(struct cache *c, const struct error *e)
{
    pthread_mutex_unlock(&c->server.lock);
    if (c->options.device_lost)
        c->options.device_lost(c->options.device_lost_arg, e);
    pthread_mutex_lock(&c->server.lock);
    c->lost = true;
}

static void *copy_thread(void *arg)
{
    struct cache *c = arg;
    struct slot_server *server = &c->server;
    pthread_setname_np(pthread_self(), "memd/copy");
    pthread_mutex_lock(&server->lock);
    while (!server->stop && !c->lost) {
        slot_server_forget_leaving(server);
        slot_server_watch(server);
        slot_server_take_records(server);
        cache_release_consumed(c);
        cache_slots_reclaim(&server->slots);
        cache_hold_shares(c);
        cache_resize_step(c);
        slot_server_report_broken(server);
        struct error e;
        uint64_t timeout_ns;
        enum error_code code = cache_fill_link(c, &timeout_ns, &e);
        cache_publish_counts(c);
        if (!code)
            code = cache_wait_link(c, resize_timeout(c, timeout_ns), &e);
        if (code)
            lose_device(c, &e);
    }
    cache_drop_queued(c);
    pthread_mutex_unlock(&server->lock);
    return NULL;
}

static enum error_code make_table(struct cache *c, const struct device_plan *p, struct error *e)
{
    uint32_t n_layers = c->map.header->n_layers, n_experts = c->map.params.router.n_experts;
    size_t bytes = residency_bytes(n_layers, n_experts, p->n_segments);
    enum error_code code = shm_create("moed-residency", bytes, &c->residency, e);
    if (code)
        return code;
    residency_init(c->residency.base, n_layers, n_experts, p->n_segments, p->slot_bytes, p->n_slots,
                   c->map.header->generation);
    struct residency_header *shown = c->residency.base;
    atomic_store(&shown->n_spare, c->reserve);
    atomic_store(&shown->kv_bytes, device_share_start_kv(p));
    shown->slots = c->arena->layout;
    cache_show_extents(c);
    code = residency_attach(&c->table, c->residency.base, bytes, e);
    if (code)
        return code;
    return shm_seal_writes(&c->residency, e); /* this mapping stays writable, no other can be */
}

void cache_show_pinning(struct cache *c, bool pinning)
{
    struct residency_header *header = c->residency.base;
    atomic_store(&header->pinning, pinning);
}

enum error_code cache_pin(struct cache *c, const _Atomic bool *stop, uint64_t *bytes,
                          struct error *e)
{
    const struct shm *tier = c->options.tier ? tier_region(c->options.tier) : NULL;
    *bytes = 0;
    if (c->arena->extents[0].shared.base)
        return ERROR_OK;
    *bytes = tier ? tier->bytes : c->map.header->bytes;
    return device_link_pin(c->link, tier ? tier->base : c->map.base, *bytes, stop, e);
}

static void ring_engine(void *arg)
{
    struct cache *c = arg;
    doorbell_ring(&c->server.bell);
}

static enum error_code make(struct cache *c, struct error *e)
{
    const struct device_plan *p = c->options.plan;
    c->plan = *p;
    c->reserve = cache_reserve_of(c, p->n_slots);
    c->aim.slots = p->n_slots;
    enum error_code code = cache_slots_init(&c->server.slots, c->link, c->arena, p->slot_bytes,
                                            device_share_most_slots(p), p->n_slots, e);
    if (!code && c->arena->n_flags && !(c->fills = calloc(c->arena->n_flags, sizeof *c->fills)))
        code = error_set(e, ERROR_MEMORY, "no memory for the flags of %" PRIu64 " slots",
                         c->arena->n_flags);
    if (!code)
        code = make_table(c, p, e);
    if (!code)
        code = cache_make_transfers(c, e);
    if (!code)
        code = cache_start_policy(c, e);
    if (code)
        return code;
    c->started_ns = clock_ns();
    struct tier_device device = {&c->table, ring_engine, c};
    if (c->options.tier)
        tier_add_device(c->options.tier, &device);
    return slot_server_start(&c->server, "memd/copy", copy_thread, e);
}

enum error_code cache_new(const struct pool_map *map, const struct cache_options *options,
                          const struct cache_counters *counters, struct cache **out,
                          struct error *e)
{
    struct cache *c = aligned_alloc(_Alignof(struct cache), sizeof *c);
    if (!c) {
        device_link_free(options->link);
        return error_set(e, ERROR_MEMORY, "no memory for the expert cache");
    }
    *c = (struct cache){.map = *map, .options = *options, .counters = *counters};
    c->link = options->link;
    c->arena = options->arena;
    c->residency.fd = -1;
    struct slot_owner owner = {.name = "cache",
                               .arg = c,
                               .asks = CACHE_LOAD,
                               .pool_generation = map->header->generation,
                               .slabs = map->slabs,
                               .n_layers = map->header->n_layers,
                               .joined = cache_worker_joined,
                               .take = cache_take_record,
                               .forget = cache_worker_forget,
                               .leaving = cache_worker_leaving,
                               .left = cache_worker_left,
                               .broken = options->worker_broken,
                               .broken_arg = options->worker_broken_arg};
    slot_server_init(&c->server, &owner);
    enum error_code code = make(c, e);
    if (code) {
        cache_free(c);
        return code;
    }
    log_info("cache: %" PRIu32 " slots of %" PRIu64 " bytes, %" PRIu32
             " of them kept free for loads",
             c->server.slots.limit, c->server.slots.slot_bytes, c->reserve);
    *out = c;
    return ERROR_OK;
}

void cache_free(struct cache *c)
{
    if (!c)
        return;
    if (c->options.tier)
        tier_remove_device(c->options.tier, c);
    slot_server_stop(&c->server);
    transfer_scheduler_free(c->transfers);
    free(c->measured);
    sched_cache_free(c->policy);
    free(c->fills);
    shm_close(&c->residency);
    device_link_free(c->link);
    slot_server_fini(&c->server);
    free(c);
}

enum error_code cache_add_worker(struct cache *c, uint64_t key, const struct shm *region,
                                 struct error *e)
{
    return slot_server_add_worker(&c->server, key, region, e);
}

void cache_remove_worker(struct cache *c, uint64_t key)
{
    slot_server_remove_worker(&c->server, key);
}

const struct device_arena *cache_arena(const struct cache *c)
{
    return c->arena;
}

const struct shm *cache_residency(const struct cache *c)
{
    return &c->residency;
}

void cache_state(struct cache *c, struct cache_state *out)
{
    const struct residency_header *shown = c->residency.base;
    uint64_t kv = atomic_load_explicit(&shown->kv_bytes, memory_order_relaxed);
    pthread_mutex_lock(&c->server.lock);
    *out = (struct cache_state){
        .usable = c->server.slots.limit,
        .kv_bytes = kv == UINT64_MAX || !c->plan.workers ? kv : kv * c->plan.workers,
        .link_bytes = c->link_bytes,
        .link_busy_ns = c->link_busy_ns,
        .since_ns = clock_ns() - c->started_ns,
    };
    cache_slots_state(&c->server.slots, &out->slots);
    pthread_mutex_unlock(&c->server.lock);
}
