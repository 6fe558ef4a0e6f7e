/* moed-memd: the memory daemon. Loads the model once, owns the host pool and the residency table, lends them
 * to workers and CPU executors, and knows at once when one of them has died. It computes nothing and parses
 * nothing but the model file, and that before anyone is attached. */
#include "cache.h"
#include "cache_metrics.h"
#include "device_plan.h"
#include "learned.h"
#include "leases.h"
#include "load.h"
#include "tier.h"
#include "tier_metrics.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/machine_memory.h"
#include "base/strbuf.h"
#include "daemon/daemon.h"
#include "device/device.h"
#include "exec/numa.h"
#include "ipc/residency.h"
#include "ipc/shm.h"
#include "metrics/recent.h"
#include "model/memory_need.h"
#include "model/serving_limits.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <time.h>

/* Which experts the device keeps, and who computes what. */
struct policy_choice {
    const struct sched_policy *policy;
    enum sched_cache_kind cache;  /* the policy's, or another in its place */
    enum sched_budget budget;     /* likewise; one that the cache takes */
    enum sched_assigner assigner; /* likewise; of workers */
    enum sched_predictor predictor;
    enum sched_prefetcher prefetcher;
};

/* What was asked for by name; a name that is empty leaves what there is. */
struct policy_names {
    const char *policy, *assigner, *cache, *budget, *predictor, *prefetcher;
};

struct memd {
    struct daemon daemon;
    /* options */
    const char *model, *device, *ram, *learned_path;
    struct policy_names names;
    uint64_t threads, segment_bytes;
    const char *kv_type; /* this and the next three as the worker has them: the device is to have room for it */
    uint64_t context, parallel;
    bool reproducible;
    struct device_spec device_spec;
    struct device_link *link; /* until the cache takes it over; NULL: host */
    struct device_plan device_plan;
    const struct device_arena *arena;
    struct policy_choice choice;
    /* what it owns */
    struct gguf *gguf;
    struct pool_plan plan;
    struct shm pool, residency;
    enum shm_pages pages; /* of the pool */
    uint64_t bytes_loaded, load_ns; /* before we were ready */
    struct pool_map map; /* for the cache */
    uint64_t generation;
    struct tier_plan tier_plan;
    struct tier *tier;           /* NULL: all experts are in the pool */
    struct cache *cache;         /* NULL: the device has no memory of its own */
    struct learned_file learned; /* what predictors know of the model; region.base NULL: nothing */
    struct leases *leases;
    _Atomic bool device_failed;
    struct counter *loaded_bytes;
    struct tier_counters tier_counters; /* where there is a tier */
    /* of the cache */
    struct counter *wasted_bytes;
    struct recent *recent;
};

static void show_progress(void *arg, uint64_t done, uint64_t total)
{
    struct memd *m = arg;
    daemon_status(&m->daemon, "loading %" PRIu64 "%% (%.1f of %.1f GB)", done * 100 / total,
                  (double)done * 1e-9, (double)total * 1e-9);
}

/* On a machine of several memory nodes, while it has no pages yet (of reserved ones, one). */
static void place_pool(struct memd *m)
{
    static struct topology t; /* large */
    uint64_t page = m->pages == SHM_PAGES_ORDINARY ? 1u << 12 : 2u << 20, reserved;
    topology_read(&t);
    memory_reserved_bytes(&reserved);
    if (m->pages == SHM_PAGES_RESERVED && reserved)
        page = reserved;
    numa_place_pool(&t, &m->plan, page, m->pool.base, m->pool.bytes);
}

/* What pages the pool has got: a reader of much memory feels the difference. */
static void log_pages(const struct memd *m)
{
    double gb = (double)m->pool.bytes * 1e-9;
    if (m->pages == SHM_PAGES_RESERVED)
        log_info("host pool: %.2f GB in reserved huge pages", gb);
    else if (m->pages == SHM_PAGES_TRANSPARENT)
        log_info("host pool: %.2f of %.2f GB in transparent huge pages",
                 (double)memory_huge_bytes(m->pool.base) * 1e-9, gb);
    else
        log_info("host pool: %.2f GB in ordinary pages; huge ones are loaded faster "
                 "(docs/operations.md)",
                 gb);
}

/* A number that no earlier load of this machine had: wall-clock nanoseconds. */
static uint64_t new_generation(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static enum error_code load_model(struct memd *m, struct error *e)
{
    const struct pool_header *h = &m->plan.header;
    struct pool *threads;
    enum error_code code = pool_new("memd/load", (unsigned)m->threads, false, 0, &threads, e);
    if (code)
        return code;
    uint64_t started = clock_ns();
    code = load_weights(m->gguf, &m->plan, m->pool.base, threads, show_progress, m, e);
    pool_free(threads);
    if (code)
        return code;
    pool_plan_write(&m->plan, m->gguf, m->generation, m->pool.base);
    uint64_t experts = h->tiered ? 0 : h->expert_bytes;
    counter_add(m->loaded_bytes, experts + h->dense_bytes);
    m->load_ns = clock_ns() - started;
    m->bytes_loaded = experts + h->dense_bytes;
    double s = (double)m->load_ns * 1e-9;
    log_info("loaded %s: %.2f GB of experts, %.2f GB dense, in %.1f s (%.2f GB/s)", h->path,
             (double)experts * 1e-9, (double)h->dense_bytes * 1e-9, s,
             (double)m->bytes_loaded * 1e-9 / s);
    log_pages(m);
    return shm_seal_writes(&m->pool, e);
}

static enum error_code make_residency(struct memd *m, struct error *e)
{
    const struct model_params *p = &m->plan.header.params;
    enum error_code code = shm_create(
        "moed-residency", residency_bytes(p->n_layers, p->router.n_experts, 1), &m->residency, e);
    if (code)
        return code;
    residency_init(m->residency.base, p->n_layers, p->router.n_experts, 1, 0, 0, m->generation);
    return shm_seal_writes(&m->residency, e); /* this mapping stays writable, no other can be */
}

/* For the shares of the last seconds. */
enum { RECENT_LINK_BYTES, RECENT_LINK_BUSY_NS, RECENT_WASTED_BYTES, RECENT_READ_BYTES };

static void sample_caches(void *arg, uint64_t values[RECENT_MOST])
{
    struct memd *m = arg;
    if (m->cache) {
        struct cache_state s;
        cache_state(m->cache, &s);
        values[RECENT_LINK_BYTES] = s.link_bytes;
        values[RECENT_LINK_BUSY_NS] = s.link_busy_ns;
        values[RECENT_WASTED_BYTES] = counter_read(m->wasted_bytes);
    }
    if (m->tier)
        values[RECENT_READ_BYTES] = counter_read(m->tier_counters.read_bytes);
}

/* A worker that breaks its cache channel loses its lease. */
static void worker_broken(void *arg, uint64_t lease)
{
    struct memd *m = arg;
    leases_end(m->leases, lease);
}

/* Host memory for a part of the experts, filled for the first time. */
static enum error_code make_tier(struct memd *m, struct error *e)
{
    m->tier_counters = tier_metrics_counters(m->daemon.metrics);
    struct tier_options options = {.plan = &m->tier_plan,
                                   .generation = m->generation,
                                   .worker_broken = worker_broken,
                                   .worker_broken_arg = m};
    enum error_code code = tier_new(m->gguf, &m->plan, &options, &m->tier_counters, &m->tier, e);
    uint64_t started = clock_ns();
    if (!code)
        code = tier_fill(m->tier, show_progress, m, e);
    if (!code) {
        tier_metrics_state(m->daemon.metrics, m->tier);
        m->load_ns += clock_ns() - started;
        m->bytes_loaded += counter_read(m->tier_counters.read_bytes);
    }
    return code;
}

/* Nothing that the driver says after that counts: we are started again, and load anew. */
static void device_lost(void *arg, const struct error *e)
{
    struct memd *m = arg;
    log_error("the device has failed: %s", e->text);
    atomic_store(&m->device_failed, true);
    daemon_request_stop(&m->daemon, EXIT_RETRY);
}

/* The device's memory is planned and taken before the model is loaded, which takes minutes: then it is too late to be told. */
static enum error_code take_device_memory(struct memd *m, struct error *e)
{
    struct pool_map planned = pool_plan_map(&m->plan);
    struct device_plan_options options = {.device = &m->device_spec,
                                          .parallel = (uint32_t)m->parallel,
                                          .context = (uint32_t)m->context,
                                          .reproducible = m->reproducible};
    enum error_code code = kv_type_parse(m->kv_type, &options.kv_type, e);
    if (!code)
        code = device_plan_new(m->link, &planned, &options, &m->device_plan, e);
    const struct device_plan *p = &m->device_plan;
    if (!code)
        code = device_link_allocate(m->link, p->dense_bytes, p->n_flags, p->slot_bytes, p->layout, p->n_slots,
                                    &m->arena, e);
    return code;
}

/* Before any worker is told where they are. */
static enum error_code place_dense(struct memd *m, struct error *e)
{
    struct pool_range dense = pool_map_dense(&m->map);
    uint64_t started = clock_ns();
    if (!m->arena->dense_bytes)
        return ERROR_OK;
    enum error_code code = device_link_place_dense(m->link, m->map.base + dense.offset, e);
    if (!code)
        log_info("%.2f GB of dense weights copied to the device in %.2f s",
                 (double)dense.bytes * 1e-9, (double)(clock_ns() - started) * 1e-9);
    return code;
}

/* What is on the device, and the residency table that says so. */
static enum error_code make_cache(struct memd *m, struct error *e)
{
    struct cache_counters counters = cache_metrics_counters(m->daemon.metrics);
    m->wasted_bytes = counters.wasted_bytes;
    enum error_code code = pool_map_attach(m->pool.base, m->pool.bytes, &m->map, e);
    if (!code)
        code = place_dense(m, e);
    struct cache_options options = {.link = m->link,
                                    .arena = m->arena,
                                    .plan = &m->device_plan,
                                    .cache = m->choice.cache,
                                    .budget = m->choice.budget,
                                    .prefetcher = m->choice.prefetcher,
                                    .tier = m->tier,
                                    .worker_broken = worker_broken,
                                    .worker_broken_arg = m,
                                    .device_lost = device_lost,
                                    .device_lost_arg = m};
    if (!code)
        code = cache_new(&m->map, &options, &counters, &m->cache, e);
    if (code)
        return code;
    cache_metrics_state(m->daemon.metrics, m->cache);
    cache_metrics_device(m->daemon.metrics, &m->device_plan, m->cache);
    return ERROR_OK;
}

static enum error_code unknown_name(const char *what, const char *name, const char *names,
                                    struct error *e)
{
    return error_set(e, ERROR_USAGE, "%s '%.40s' is not known; there are %s", what, name, names);
}

/* A cache that is named without a budget brings its own along where it must; a named budget that the cache does not take is
 * refused. */
static enum error_code choose_budget(struct policy_choice *c, const char *budget, struct error *e)
{
    if (budget[0] && !sched_budget_find(budget, &c->budget))
        return unknown_name("budget", budget, sched_budget_names(), e);
    if (sched_cache_takes(c->cache, c->budget))
        return ERROR_OK;
    if (!budget[0]) {
        c->budget = sched_cache_budget(c->cache);
        return ERROR_OK;
    }
    struct strbuf takers;
    const char *name;
    strbuf_init(&takers);
    for (int k = 0; (name = sched_cache_name((enum sched_cache_kind)k)); k++)
        if (sched_cache_takes((enum sched_cache_kind)k, c->budget) &&
            !sched_cache_replay_only((enum sched_cache_kind)k))
            strbuf_printf(&takers, "%s%s", takers.len ? ", " : "", name);
    error_set(e, ERROR_USAGE, "cache %s does not take budget %s; those that do are %s",
              sched_cache_name(c->cache), budget, takers.failed ? "not listed" : takers.data);
    strbuf_fini(&takers);
    return ERROR_USAGE;
}

/* A policy brings its own parts, those that are named take their place. */
static enum error_code choose(struct policy_choice *c, const struct policy_names *names,
                              struct error *e)
{
    struct policy_choice new = *c;
    if (names->policy[0]) {
        const struct sched_policy *p = sched_policy_find(names->policy);
        if (!p)
            return unknown_name("policy", names->policy, sched_policy_names(), e);
        new = (struct policy_choice){p,           p->cache,     p->budget,
                                     p->assigner, p->predictor, p->prefetcher};
    }
    if (names->cache[0] && !sched_cache_find(names->cache, &new.cache))
        return unknown_name("cache", names->cache, sched_cache_names(), e);
    if (names->assigner[0] && !sched_assigner_find(names->assigner, &new.assigner))
        return unknown_name("assigner", names->assigner, sched_assigner_names(), e);
    if (names->predictor[0] && !sched_predictor_find(names->predictor, &new.predictor))
        return unknown_name("predictor", names->predictor, sched_predictor_names(), e);
    if (names->prefetcher[0] && !sched_prefetcher_find(names->prefetcher, &new.prefetcher))
        return unknown_name("prefetcher", names->prefetcher, sched_prefetcher_names(), e);
    enum error_code code = choose_budget(&new, names->budget, e);
    if (!code)
        *c = new;
    return code;
}

static enum error_code reply_attach(struct memd *m, const Moed__V1__MemoryAttachRequest *request,
                                    Moed__V1__Reply *reply, struct error *e)
{
    static Moed__V1__MemoryAttachReply attached;
    moed__v1__memory_attach_reply__init(&attached);
    if (request->layout_version != POOL_LAYOUT_VERSION)
        return error_set(e, ERROR_VERSION,
                         "the client knows pool layout %" PRIu32 ", this memd has %u: programs of "
                         "two builds are mixed",
                         request->layout_version, POOL_LAYOUT_VERSION);
    enum error_code code = leases_attach(m->leases, request->lease, request->role, e);
    if (code)
        return code;
    attached.generation = m->generation;
    attached.pool_bytes = m->pool.bytes;
    attached.model_path = m->plan.header.path;
    attached.model_name = m->plan.header.params.name;
    reply->body_case = MOED__V1__REPLY__BODY_MEMORY_ATTACH;
    reply->memory_attach = &attached;
    return ERROR_OK;
}

static enum error_code reply_detach(struct memd *m, const Moed__V1__MemoryDetachRequest *request,
                                    Moed__V1__Reply *reply, struct error *e)
{
    static Moed__V1__MemoryDetachReply detached;
    moed__v1__memory_detach_reply__init(&detached);
    enum error_code code = leases_detach(m->leases, request->lease, e);
    if (code)
        return code;
    reply->body_case = MOED__V1__REPLY__BODY_MEMORY_DETACH;
    reply->memory_detach = &detached;
    return ERROR_OK;
}

/* Entry i of the memory map: the dense tensors, then each layer's slabs. */
static void describe_entry(const struct memd *m, uint32_t i, Moed__V1__MemoryMapEntry *entry,
                           char name[32])
{
    const struct pool_header *h = &m->plan.header;
    moed__v1__memory_map_entry__init(entry);
    if (i < h->n_tensors) {
        const struct pool_tensor *t = &m->plan.tensors[i];
        entry->name = (char *)t->name;
        entry->type = (char *)tensor_type_info(t->type)->name;
        entry->offset = t->offset;
        entry->bytes = t->bytes;
        entry->rows = t->rows;
        entry->cols = t->cols;
        return;
    }
    uint32_t layer = i - h->n_tensors + h->params.n_dense;
    const struct pool_slabs *s = &m->plan.slabs[layer];
    snprintf(name, 32, "blk.%" PRIu32 ".experts", layer);
    entry->name = name;
    entry->type = (char *)tensor_type_info(s->gate_type)->name;
    entry->offset = s->offset;
    entry->bytes = s->slab_bytes * s->n_experts;
    entry->rows = s->segment_width * s->n_segments;
    entry->cols = s->d_model;
    entry->experts = s->n_experts;
    entry->segments = s->n_segments;
}

static Moed__V1__DeviceMemory *describe_device(const struct memd *m)
{
    static Moed__V1__DeviceMemory memory;
    const struct device_plan *p = &m->device_plan;
    struct cache_state s;
    cache_state(m->cache, &s);
    moed__v1__device_memory__init(&memory);
    memory.device = (char *)m->device;
    memory.dense_bytes = p->dense_bytes;
    memory.expert_bytes = s.usable * s.slot_bytes;
    memory.kv_bytes = p->kv_bytes ? s.kv_bytes : 0;
    memory.scratch_bytes = p->scratch_bytes;
    return &memory;
}

static enum error_code reply_map(struct memd *m, const Moed__V1__MemoryMapRequest *request,
                                 Moed__V1__Reply *reply)
{
    enum { MOST = 256 };
    static Moed__V1__MemoryMapReply map;
    static Moed__V1__MemoryMapEntry entries[MOST], *pointers[MOST];
    static char names[MOST][32];
    moed__v1__memory_map_reply__init(&map);
    const struct pool_header *h = &m->plan.header;
    map.generation = m->generation;
    map.total = h->n_tensors + h->n_layers - h->params.n_dense;
    uint32_t most = request->count && request->count < MOST ? request->count : MOST;
    for (uint32_t i = request->first; i < map.total && map.n_entries < most; i++) {
        describe_entry(m, i, &entries[map.n_entries], names[map.n_entries]);
        pointers[map.n_entries] = &entries[map.n_entries];
        map.n_entries++;
    }
    map.entries = pointers;
    if (m->cache)
        map.device = describe_device(m);
    reply->body_case = MOED__V1__REPLY__BODY_MEMORY_MAP;
    reply->memory_map = &map;
    return ERROR_OK;
}

/* A policy whose predictor has to be trained first serves with another meanwhile; a predictor that is named itself does not. */
static void settle_predictor(struct memd *m, struct policy_choice *c,
                             const struct policy_names *names)
{
    struct error why;
    if (!names->policy[0] || names->predictor[0] ||
        !learned_check_predictor(&m->learned, &m->plan.header.params, c->predictor, &why))
        return;
    log_warn("policy %s: %s; next-gate takes its place", c->policy->name, why.text);
    c->predictor = PREDICT_NEXT_GATE;
}

static enum error_code change_policy(struct memd *m, const Moed__V1__PolicyRequest *request,
                                     struct error *e)
{
    struct policy_choice c = m->choice;
    struct policy_names names = {request->policy, request->assigner,  request->cache,
                                 request->budget, request->predictor, request->prefetcher};
    enum error_code code = choose(&c, &names, e);
    bool predictor_alone = request->predictor[0] && !request->policy[0] && !request->assigner[0] &&
                           !request->cache[0] && !request->budget[0] && !request->prefetcher[0];
    if (!code && !m->cache && !(m->tier && predictor_alone))
        code =
            error_set(e, ERROR_UNSUPPORTED, "device %s has no memory of its own: no expert cache%s",
                      m->device, m->tier ? "; the predictor alone can be changed" : "");
    if (!code)
        settle_predictor(m, &c, &names);
    if (!code)
        code = learned_check_predictor(&m->learned, &m->plan.header.params, c.predictor, e);
    bool other = c.cache != m->choice.cache || c.budget != m->choice.budget;
    if (!code && m->cache && other) /* the same one keeps what it knows */
        code = cache_set_policy(m->cache, c.cache, c.budget, e);
    if (!code && m->cache)
        cache_set_prefetcher(m->cache, c.prefetcher);
    if (code)
        return code;
    m->choice = c;
    log_info("policy %s: cache %s, budget %s, assigner %s, predictor %s, prefetcher %s",
             c.policy->name, sched_cache_name(c.cache), sched_budget_name(c.budget),
             sched_assigner_name(c.assigner), sched_predictor_name(c.predictor),
             sched_prefetcher_name(c.prefetcher));
    return ERROR_OK;
}

static void describe_tier(struct memd *m, Moed__V1__PolicyReply *policy)
{
    struct tier_state s;
    tier_state(m->tier, &s);
    policy->has_tier = true;
    policy->tier_experts = s.experts;
    policy->tier_slots = s.slots;
    policy->tier_free = s.free;
    policy->tier_resident = s.resident;
    policy->tier_filling = s.filling;
    policy->tier_retired = s.retired;
    policy->tier_slot_bytes = s.slot_bytes;
    policy->disk_read_bytes = counter_read(m->tier_counters.read_bytes);
    policy->disk_busy_ns = s.busy_ns;
    policy->tier_since_ns = s.since_ns;
}

static enum error_code reply_policy(struct memd *m, const Moed__V1__PolicyRequest *request,
                                    Moed__V1__Reply *reply, struct error *e)
{
    static Moed__V1__PolicyReply policy;
    if (request->policy[0] || request->cache[0] || request->assigner[0] || request->budget[0] ||
        request->predictor[0] || request->prefetcher[0]) {
        enum error_code code = change_policy(m, request, e);
        if (code)
            return code;
    }
    moed__v1__policy_reply__init(&policy);
    policy.device = (char *)m->device;
    policy.assigner = (char *)sched_assigner_name(m->choice.assigner);
    policy.predictor = (char *)sched_predictor_name(m->choice.predictor);
    if (m->cache) {
        struct cache_state s;
        cache_state(m->cache, &s);
        policy.has_cache = true;
        policy.part = (char *)sched_cache_name(m->choice.cache);
        policy.budget = (char *)sched_budget_name(m->choice.budget);
        policy.prefetcher = (char *)sched_prefetcher_name(m->choice.prefetcher);
        policy.slots = s.slots;
        policy.free = s.free;
        policy.resident = s.resident;
        policy.filling = s.filling;
        policy.retired = s.retired;
        policy.slot_bytes = s.slot_bytes;
        policy.link_bytes = s.link_bytes;
        policy.link_busy_ns = s.link_busy_ns;
        policy.since_ns = s.since_ns;
    }
    if (m->tier)
        describe_tier(m, &policy);
    reply->body_case = MOED__V1__REPLY__BODY_POLICY;
    reply->policy = &policy;
    return ERROR_OK;
}

static const char *resize_waits(enum cache_resize_wait waits)
{
    switch (waits) {
    case CACHE_RESIZE_USE:
        return "for experts that are in use";
    case CACHE_RESIZE_CLOSE:
        return "for a worker to leave the memory that goes";
    case CACHE_RESIZE_KV:
        return "for requests to end: a worker's KV cache is too large still";
    case CACHE_RESIZE_MEMORY:
        return "for memory of the device that others leave";
    case CACHE_RESIZE_MAP:
        return "for a worker to map the memory that has come";
    default:
        return "";
    }
}

static enum error_code reply_resize(struct memd *m, const Moed__V1__ResizeRequest *request,
                                    Moed__V1__Reply *reply, struct error *e)
{
    static Moed__V1__ResizeReply resize;
    static struct cache_resize_state now; /* its text is sent */
    struct cache_state before;
    struct device_spec asked = m->device_spec;
    uint32_t n_slots;
    if (!m->cache)
        return error_set(e, ERROR_UNSUPPORTED,
                         "device %s has no memory of its own: no expert cache", m->device);
    cache_state(m->cache, &before);
    if (request->vram[0]) {
        enum error_code code = device_parse_vram(request->vram, &asked, e);
        if (!code)
            code = device_plan_resize(&m->device_plan,
                                      device_arena_bytes(&asked, m->plan.header.expert_bytes),
                                      &n_slots, e);
        if (code)
            return code;
        log_info("resize to %s: %" PRIu64 " slots become %" PRIu32, request->vram, before.usable,
                 n_slots);
        cache_resize(m->cache, n_slots);
    }
    cache_resize_state(m->cache, &now);
    moed__v1__resize_reply__init(&resize);
    resize.number = now.number;
    resize.busy = now.busy;
    resize.waits = (char *)(now.busy ? resize_waits(now.waits) : "");
    resize.failed = now.busy || !now.failed.code ? (char *)"" : now.failed.text;
    resize.expert_bytes = before.usable * before.slot_bytes;
    resize.slots = before.usable;
    resize.total_slots = m->device_plan.total_segments;
    resize.has_kv = m->device_plan.kv_bytes > 0;
    resize.kv_bytes = resize.has_kv ? before.kv_bytes : 0;
    reply->body_case = MOED__V1__REPLY__BODY_RESIZE;
    reply->resize = &resize;
    return ERROR_OK;
}

static enum error_code handle_request(void *arg, const Moed__V1__Request *request,
                                      Moed__V1__Reply *reply, struct error *e)
{
    struct memd *m = arg;
    switch (request->body_case) {
    case MOED__V1__REQUEST__BODY_MEMORY_ATTACH:
        return reply_attach(m, request->memory_attach, reply, e);
    case MOED__V1__REQUEST__BODY_MEMORY_DETACH:
        return reply_detach(m, request->memory_detach, reply, e);
    case MOED__V1__REQUEST__BODY_POLICY:
        return reply_policy(m, request->policy, reply, e);
    case MOED__V1__REQUEST__BODY_RESIZE:
        return reply_resize(m, request->resize, reply, e);
    case MOED__V1__REQUEST__BODY_MEMORY_MAP:
        return reply_map(m, request->memory_map, reply);
    default:
        return daemon_unknown(request, e);
    }
}

static void fill_health(void *arg, Moed__V1__HealthReply *health)
{
    struct memd *m = arg;
    health->model = m->plan.header.params.name;
    health->clients = leases_count(m->leases);
    health->loaded_bytes = m->bytes_loaded;
    health->load_ns = m->load_ns;
    if (m->cache)
        health->device_memory = describe_device(m);
    if (!m->recent)
        return;
    static Moed__V1__CacheHealth cache;
    static Moed__V1__TierHealth tier;
    uint64_t growth[RECENT_MOST], window_ns = recent_read(m->recent, growth);
    if (m->cache) {
        struct cache_state now;
        cache_state(m->cache, &now);
        moed__v1__cache_health__init(&cache);
        cache.window_ns = window_ns;
        cache.slots = now.slots;
        cache.resident = now.resident;
        cache.link_bytes = growth[RECENT_LINK_BYTES];
        cache.link_busy_ns = growth[RECENT_LINK_BUSY_NS];
        cache.wasted_bytes = growth[RECENT_WASTED_BYTES];
        health->cache = &cache;
    }
    if (m->tier) {
        struct tier_state now;
        tier_state(m->tier, &now);
        moed__v1__tier_health__init(&tier);
        tier.window_ns = window_ns;
        tier.experts = now.experts;
        tier.in_memory = now.resident;
        tier.read_bytes = growth[RECENT_READ_BYTES];
        health->tier = &tier;
    }
}

static double read_clients(void *arg)
{
    struct memd *m = arg;
    return m->leases ? leases_count(m->leases) : 0;
}

static double read_freed(void *arg)
{
    struct memd *m = arg;
    return m->leases ? (double)leases_freed(m->leases) : 0;
}

static void register_metrics(struct memd *m)
{
    struct metrics *r = m->daemon.metrics;
    const struct pool_header *h = &m->plan.header;
    m->loaded_bytes = metrics_counter(r, "moed_memd_loaded_bytes_total", NULL, 1,
                                      "Bytes of weights loaded into the pool from the model file.");
    gauge_set(
        metrics_gauge(r, "moed_memd_pool_bytes", "kind=\"experts\"",
                      "Bytes of weights in the host pool."),
        (int64_t)(h->tiered ? m->tier_plan.n_slots * m->tier_plan.slot_bytes : h->expert_bytes));
    gauge_set(metrics_gauge(r, "moed_memd_pool_bytes", "kind=\"dense\"",
                            "Bytes of weights in the host pool."),
              (int64_t)h->dense_bytes);
    metrics_gauge_function(r, "moed_memd_leases", NULL, read_clients, m,
                           "Processes that hold the pool.");
    metrics_gauge_function(r, "moed_memd_leases_ended", NULL, read_freed, m,
                           "Leases freed since start because their holder left or died.");
}

/* Of no use, it is done without; but a predictor that is chosen and cannot do without is refused now. */
static enum error_code load_learned(struct memd *m, bool predicts, struct error *e)
{
    const struct model_params *p = &m->plan.header.params;
    struct error why;
    if (m->learned_path &&
        learned_file_load(m->learned_path, m->gguf, p, &m->learned, &why) != ERROR_OK)
        log_warn("%s is not used: %s", m->learned_path, why.text);
    else if (m->learned_path)
        log_info("%s: what predictors know, %.1f MB", m->learned_path,
                 (double)m->learned.region.bytes * 1e-6);
    if (predicts)
        settle_predictor(m, &m->choice, &m->names);
    return predicts ? learned_check_predictor(&m->learned, p, m->choice.predictor, e) : ERROR_OK;
}

static enum error_code start(struct memd *m, struct error *e)
{
    enum error_code code = choose(&m->choice, &m->names, e);
    if (!code)
        code = device_parse(m->device, &m->device_spec, e);
    bool has_memory = !code && m->device_spec.kind != DEVICE_HOST;
    if (has_memory) /* first: loading for minutes is not to end with its absence */
        code = device_link_new(&m->device_spec, &m->link, e);
    if (!code)
        code = gguf_open(m->model, &m->gguf, e);
    if (!code)
        code = pool_plan_new_cut(m->gguf, m->segment_bytes, &m->plan, e);
    if (!code)
        code = tier_plan_new(&m->plan, m->ram, &m->tier_plan, e);
    if (code)
        return code;
    if (m->tier_plan.n_slots)
        pool_plan_keep_dense(&m->plan);
    code = memory_need_check(&m->plan, m->tier_plan.bytes + m->tier_plan.read_bytes, e);
    if (!code)
        code = load_learned(m, has_memory || m->tier_plan.n_slots, e);
    if (!code && has_memory)
        code = take_device_memory(m, e);
    if (code)
        return code;
    register_metrics(m);
    m->generation = new_generation();
    code = shm_create_large("moed-pool", m->plan.header.bytes, &m->pool, &m->pages, e);
    if (!code)
        place_pool(m);
    if (!code)
        code = load_model(m, e);
    if (!code && m->tier_plan.n_slots)
        code = make_tier(m, e);
    if (code)
        return code;
    code = has_memory ? make_cache(m, e) : make_residency(m, e);
    if (!code && (m->cache || m->tier))
        code = recent_new("memd/recent", sample_caches, m, &m->recent, e);
    return code;
}

/* A broken file stays broken: no restart mends it. Memory may be free again in a moment. */
static int exit_code_for(enum error_code code)
{
    switch (code) {
    case ERROR_USAGE:
        return EXIT_BAD_USAGE;
    case ERROR_IO:
    case ERROR_MEMORY:
    case ERROR_INTERNAL:
        return EXIT_RETRY;
    default:
        return EXIT_PERMANENT;
    }
}

int main(int argc, char **argv)
{
    static struct memd m = {.device = "host",
                            .names = {"moed", "", "", "", "", ""},
                            .segment_bytes = POOL_SEGMENT_BYTES,
                            .kv_type = KV_TYPE_DEFAULT,
                            .parallel = DEFAULT_PARALLEL,
                            .pool.fd = -1,
                            .learned.region.fd = -1,
                            .residency.fd = -1};
    const struct option_spec options[] = {
        {"model", OPTION_STRING, &m.model, 0, 0, "FILE", "the GGUF file to load"},
        {"device", OPTION_STRING, &m.device, 0, 0, "DEVICE",
         "where weights are kept too: host, cuda[:N][,vram=SIZE][,dense=host], or "
         "emu:vram=SIZE,link=RATE[,latency=TIME][,speed=FACTOR][,call=TIME]"},
        {"policy", OPTION_STRING, &m.names.policy, 0, 0, "NAME", sched_policy_help()},
        {"assign", OPTION_STRING, &m.names.assigner, 0, 0, "NAME", sched_assigner_help()},
        {"cache", OPTION_STRING, &m.names.cache, 0, 0, "NAME", sched_cache_help()},
        {"predictor", OPTION_STRING, &m.names.predictor, 0, 0, "NAME", sched_predictor_help()},
        {"budget", OPTION_STRING, &m.names.budget, 0, 0, "NAME", sched_budget_help()},
        {"prefetch", OPTION_STRING, &m.names.prefetcher, 0, 0, "NAME", sched_prefetcher_help()},
        {"learned", OPTION_STRING, &m.learned_path, 0, 0, "FILE",
         "what `moed train` wrote for the model; not used where it is broken or another model's"},
        {"segment-bytes", OPTION_UINT, &m.segment_bytes, 1, 1u << 30, "N",
         "cut experts into segments of at most so many bytes, where their width allows"},
        {"ram", OPTION_STRING, &m.ram, 0, 0, "SIZE",
         "host memory for weights: bytes (K, M, G, Ki, Mi, Gi) or a share of the model, as 50%; "
         "what does not fit is read from the file when it is needed (all)"},
        {"ctx", OPTION_UINT, &m.context, 0, 1 << 24, "N",
         "the worker's, for which a CUDA device is to have room"},
        {"parallel", OPTION_UINT, &m.parallel, 1, 256, "N", "likewise"},
        {"kv-type", OPTION_STRING, &m.kv_type, 0, 0, "TYPE", "likewise"},
        {"reproducible", OPTION_BOOL, &m.reproducible, 0, 0, NULL, "likewise"},
        {"threads", OPTION_UINT, &m.threads, 0, 1024, "N", "loading threads; 0: one a core"},
        {0},
    };
    daemon_start(&m.daemon, "memd", "the memory daemon of a moed deployment", options, argc, argv);
    struct error e;
    if (!m.model) {
        error_set(&e, ERROR_USAGE, "no model: give --model FILE");
        daemon_fail(&m.daemon, EXIT_BAD_USAGE, &e);
    }
    enum error_code code = start(&m, &e);
    if (code)
        daemon_fail(&m.daemon, exit_code_for(code), &e);
    static const struct daemon_handlers handlers = {fill_health, handle_request};
    struct lent lent = {&m.pool, m.cache ? cache_residency(m.cache) : &m.residency, m.cache,
                        m.tier,  m.learned.region.base ? &m.learned.region : NULL,  m.generation};
    code = leases_open(m.daemon.run, &lent, &m.leases, &e);
    if (!code)
        code = daemon_serve(&m.daemon, &handlers, &m, &e);
    if (code)
        daemon_fail(&m.daemon, EXIT_RETRY, &e);
    daemon_status(&m.daemon, "serving %s", m.plan.header.params.name);
    daemon_ready(&m.daemon);
    int exit_code = daemon_wait(&m.daemon);
    daemon_stop(&m.daemon);
    leases_close(m.leases);
    if (atomic_load(&m.device_failed)) /* what of its driver still answers is not waited for */
        _exit(exit_code);
    recent_free(m.recent);
    cache_free(m.cache);
    tier_free(m.tier);
    return exit_code;
}
