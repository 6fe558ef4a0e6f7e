/* moed-memd's replies on the control plane; see memd.h. The messages are static: memd answers one
 * request at a time. */
#include "memd.h"
#include "watch.h"

#include "base/log.h"
#include "memory/layouts.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

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

struct workers_list {
    Moed__V1__WorkersReply reply;
    Moed__V1__WorkerState states[KV_POOL_WORKERS], *pointers[KV_POOL_WORKERS];
    char names[KV_POOL_WORKERS][16];
};

static void add_worker(void *arg, const char *process, pid_t pid, const struct kv_pool_worker *from)
{
    struct workers_list *list = arg;
    size_t n = list->reply.n_workers;
    uint32_t state = atomic_load(&from->state);
    if (n == KV_POOL_WORKERS || state == KV_WORKER_STARTS)
        return;
    Moed__V1__WorkerState *to = list->pointers[n] = &list->states[n];
    moed__v1__worker_state__init(to);
    snprintf(list->names[n], sizeof list->names[n], "%s", process);
    to->process = list->names[n];
    to->pid = (uint32_t)pid;
    to->running = atomic_load(&from->running);
    to->waiting = atomic_load(&from->waiting);
    to->leaving = state == KV_WORKER_LEAVES;
    list->reply.n_workers++;
}

static enum error_code reply_workers(struct memd *m, Moed__V1__Reply *reply)
{
    static struct workers_list list;
    moed__v1__workers_reply__init(&list.reply);
    list.reply.workers = list.pointers;
    leases_visit_workers(m->leases, add_worker, &list);
    reply->body_case = MOED__V1__REPLY__BODY_WORKERS;
    reply->workers = &list.reply;
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
    snprintf(name, 32, "blk.%" PRIu32 ".experts", h->params.layers[layer].blocks.feed_forward);
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
    struct cache_state s;
    caches_state(&m->caches, &s);
    moed__v1__device_memory__init(&memory);
    memory.device = (char *)m->device;
    memory.expert_bytes = s.usable * s.slots.slot_bytes;
    memory.kv_bytes = m->devices[0].plan.kv_bytes ? s.kv_bytes : 0;
    for (unsigned i = 0; i < m->caches.n; i++) {
        const struct device_plan *p = &m->devices[i].plan;
        memory.dense_bytes += p->dense_bytes;
        memory.expert_bytes_most += (uint64_t)p->total_segments * s.slots.slot_bytes;
        memory.scratch_bytes += p->scratch_bytes;
    }
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
    if (m->caches.n)
        map.device = describe_device(m);
    reply->body_case = MOED__V1__REPLY__BODY_MEMORY_MAP;
    reply->memory_map = &map;
    return ERROR_OK;
}

static enum error_code change_policy(struct memd *m, const Moed__V1__PolicyRequest *request,
                                     struct error *e)
{
    struct policy_choice c = m->choice;
    struct policy_names names = {request->policy, request->assigner,  request->cache,
                                 request->budget, request->predictor, request->prefetcher};
    enum error_code code = policy_choose(&c, &names, e);
    bool predictor_only = request->predictor[0] && !request->policy[0] && !request->assigner[0] &&
                          !request->cache[0] && !request->budget[0] && !request->prefetcher[0];
    if (!code && !m->caches.n && !(m->tier && predictor_only))
        code =
            error_set(e, ERROR_UNSUPPORTED, "device %s has no memory of its own: no expert cache%s",
                      m->device, m->tier ? "; only the predictor can be changed" : "");
    if (!code)
        policy_settle_predictor(&c, &names, &m->predictors, &m->plan.header.params);
    if (!code)
        code = trained_check_predictor(&m->predictors, &m->plan.header.params, c.predictor, e);
    bool other = c.cache != m->choice.cache || c.budget != m->choice.budget ||
                 (c.cache == CACHE_STATIC && c.prefetcher != m->choice.prefetcher);
    if (!code)
        caches_set_prefetcher(&m->caches, c.prefetcher);
    if (!code && other) /* the same policy keeps its state */
        code = caches_set_policy(&m->caches, c.cache, c.budget, e);
    if (code)
        caches_set_prefetcher(&m->caches, m->choice.prefetcher);
    if (code)
        return code;
    policy_metrics_changes(m->policy_metrics);
    m->choice = c;
    if (m->caches.n) {
        struct cache_state now;
        caches_state(&m->caches, &now);
        m->since = (struct memd_since){now.link_bytes, now.link_busy_ns, now.since_ns};
    }
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
    policy->tier_slots = s.slots.total;
    policy->tier_free = s.slots.free;
    policy->tier_resident = s.slots.resident;
    policy->tier_filling = s.slots.filling;
    policy->tier_retired = s.slots.retired;
    policy->tier_slot_bytes = s.slots.slot_bytes;
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
    if (m->caches.n) {
        struct cache_state s;
        caches_state(&m->caches, &s);
        policy.has_cache = true;
        policy.part = (char *)sched_cache_name(m->choice.cache);
        policy.budget = (char *)sched_budget_name(m->choice.budget);
        policy.prefetcher = (char *)sched_prefetcher_name(m->choice.prefetcher);
        policy.slots = s.slots.total;
        policy.free = s.slots.free;
        policy.resident = s.slots.resident;
        policy.filling = s.slots.filling;
        policy.retired = s.slots.retired;
        policy.slot_bytes = s.slots.slot_bytes;
        policy.link_bytes = s.link_bytes - m->since.link_bytes;
        policy.link_busy_ns = s.link_busy_ns - m->since.link_busy_ns;
        policy.since_ns = s.since_ns - m->since.ns;
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
        return "for experts in use";
    case CACHE_RESIZE_CLOSE:
        return "for a worker to close the memory that goes";
    case CACHE_RESIZE_KV:
        return "for requests to end: a worker's KV cache is still too large";
    case CACHE_RESIZE_MEMORY:
        return "for device memory that other processes must free";
    case CACHE_RESIZE_MAP:
        return "for a worker to map the new memory";
    default:
        return "";
    }
}

/* Begins the resize of every device to the same size. Nothing changes where one cannot have it. */
static enum error_code begin_resize(struct memd *m, const char *vram, struct error *e)
{
    struct device_spec asked = m->device_spec;
    uint32_t n_slots[DEVICES_MAX];
    enum error_code code = device_parse_vram(vram, &asked, e);
    for (unsigned i = 0; i < m->caches.n && !code; i++)
        code = device_share_resize(&m->devices[i].plan,
                                   device_arena_bytes(&asked, m->plan.header.expert_bytes),
                                   &n_slots[i], e);
    for (unsigned i = 0; i < m->caches.n && !code; i++) {
        log_info("resize of device %u to %s: %" PRIu32 " slots", i, vram, n_slots[i]);
        cache_resize(m->caches.each[i], n_slots[i]);
    }
    return code;
}

static enum error_code reply_resize(struct memd *m, const Moed__V1__ResizeRequest *request,
                                    Moed__V1__Reply *reply, struct error *e)
{
    static Moed__V1__ResizeReply resize;
    static struct cache_resize_state now; /* its text is sent */
    struct cache_state before;
    if (!m->caches.n)
        return error_set(e, ERROR_UNSUPPORTED,
                         "device %s has no memory of its own: no expert cache", m->device);
    caches_state(&m->caches, &before);
    enum error_code code = request->vram[0] ? begin_resize(m, request->vram, e) : ERROR_OK;
    if (code)
        return code;
    caches_resize_state(&m->caches, &now);
    moed__v1__resize_reply__init(&resize);
    resize.number = now.number;
    resize.busy = now.busy;
    resize.waits = (char *)(now.busy ? resize_waits(now.waits) : "");
    resize.failed = now.busy || !now.failed.code ? (char *)"" : now.failed.text;
    resize.expert_bytes = before.usable * before.slots.slot_bytes;
    resize.slots = before.usable;
    for (unsigned i = 0; i < m->caches.n; i++)
        resize.total_slots += m->devices[i].plan.total_segments;
    resize.has_kv = m->devices[0].plan.kv_bytes > 0;
    resize.kv_bytes = resize.has_kv ? before.kv_bytes : 0;
    reply->body_case = MOED__V1__REPLY__BODY_RESIZE;
    reply->resize = &resize;
    return ERROR_OK;
}

enum error_code memd_handle_request(void *arg, const Moed__V1__Request *request,
                                    Moed__V1__Reply *reply, struct error *e)
{
    struct memd *m = arg;
    switch (request->body_case) {
    case MOED__V1__REQUEST__BODY_MEMORY_ATTACH:
        return reply_attach(m, request->memory_attach, reply, e);
    case MOED__V1__REQUEST__BODY_WORKERS:
        return reply_workers(m, reply);
    case MOED__V1__REQUEST__BODY_MEMORY_DETACH:
        return reply_detach(m, request->memory_detach, reply, e);
    case MOED__V1__REQUEST__BODY_POLICY:
        return reply_policy(m, request->policy, reply, e);
    case MOED__V1__REQUEST__BODY_RESIZE:
        return reply_resize(m, request->resize, reply, e);
    case MOED__V1__REQUEST__BODY_MEMORY_MAP:
        return reply_map(m, request->memory_map, reply);
    case MOED__V1__REQUEST__BODY_PLACEMENT_MAP:
        return memd_reply_placement_map(m, request->placement_map, reply, e);
    default:
        return daemon_unknown(request, e);
    }
}

void memd_fill_health(void *arg, Moed__V1__HealthReply *health)
{
    struct memd *m = arg;
    health->model = m->plan.header.params.name;
    health->clients = leases_count(m->leases);
    health->loaded_bytes = m->bytes_loaded;
    health->load_ns = m->load_ns;
    health->layouts = layouts_number();
    if (m->predictors_unused)
        health->predictors_unused = m->predictors_unused;
    struct kv_pool_use kv = kv_pool_use(&m->conversations.pool);
    health->kv_used_bytes = kv.pages_used * m->conversations.pool.page_bytes;
    health->kv_bytes = m->conversations.region.bytes;
    health->kv_promised_bytes = conversations_promised_bytes(&m->conversations);
    if (m->caches.n)
        health->device_memory = describe_device(m);
    if (!m->recent)
        return;
    static Moed__V1__CacheHealth cache;
    static Moed__V1__TierHealth tier;
    uint64_t growth[RECENT_MOST], window_ns = recent_read(m->recent, growth);
    if (m->caches.n) {
        struct cache_state now;
        caches_state(&m->caches, &now);
        moed__v1__cache_health__init(&cache);
        cache.window_ns = window_ns;
        cache.slots = now.slots.total;
        cache.resident = now.slots.resident;
        cache.devices = m->caches.n;
        cache.link_bytes = growth[RECENT_LINK_BYTES];
        cache.link_busy_ns = growth[RECENT_LINK_BUSY_NS] / m->caches.n; /* the mean of the links */
        cache.wasted_bytes = growth[RECENT_WASTED_BYTES];
        cache.predicted_bytes = growth[RECENT_PREDICTED_BYTES];
        cache.predicted_used_bytes = growth[RECENT_PREDICTED_USED_BYTES];
        health->cache = &cache;
    }
    if (m->tier) {
        struct tier_state now;
        tier_state(m->tier, &now);
        moed__v1__tier_health__init(&tier);
        tier.window_ns = window_ns;
        tier.experts = now.experts;
        tier.in_memory = now.slots.resident;
        tier.read_bytes = growth[RECENT_READ_BYTES];
        health->tier = &tier;
    }
}
