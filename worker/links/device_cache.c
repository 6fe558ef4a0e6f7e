/* The worker's side of the expert cache; see device_cache.h. */
#include "device_cache.h"

#include "base/checked.h"
#include "base/clock.h"
#include "base/log.h"
#include "confine/calls.h"
#include "ipc/arena_follow.h"

#include <inttypes.h>
#include <stdlib.h>

struct device_cache {
    const struct memory_client *memory;
    struct device_compute *compute;
    struct cache_channel *channel;
    uint64_t all_segments; /* of the model */
    struct arena_follower follower;
    struct device_import extents[ARENA_EXTENTS]; /* without the first */
    const uint8_t *places[ARENA_EXTENTS];        /* each one's first slot, on the device */
};

static enum error_code import(void *arg, uint32_t extent, const struct residency_extent *what,
                              struct error *e)
{
    struct device_cache *c = arg;
    uint64_t bytes;
    if (!checked_mul(what->n_slots, c->memory->residency.header->slot_bytes, &bytes))
        return error_set(e, ERROR_PROTOCOL,
                         "memd's arena has an extent of %" PRIu32 " slots, which is too large",
                         what->n_slots);
    enum error_code code =
        device_compute_import(c->compute, what->handle, bytes, &c->extents[extent], e);
    c->places[extent] = code ? NULL : c->extents[extent].slots;
    return code;
}

static void close_extent(void *arg, uint32_t extent)
{
    struct device_cache *c = arg;
    device_compute_close(c->compute, &c->extents[extent]);
    c->places[extent] = NULL;
}

enum error_code device_cache_new(const struct memory_client *memory, struct device_compute *compute,
                                 struct cache_link *link, struct device_cache **out,
                                 struct error *e)
{
    struct device_cache *c = calloc(1, sizeof *c);
    if (!c)
        return error_set(e, ERROR_MEMORY, "no memory for the caches' tables");
    c->memory = memory;
    c->compute = compute;
    c->channel = &link->channel;
    c->all_segments = pool_map_segments(&memory->map);
    c->places[0] = device_compute_arena(compute);
    c->follower = (struct arena_follower){.header = memory->residency.header,
                                          .channel = link->channel.header,
                                          .arg = c,
                                          .import = import,
                                          .close = close_extent};
    enum error_code code = arena_follow(&c->follower, e);
    if (code) {
        device_cache_free(c);
        return code;
    }
    *out = c;
    return ERROR_OK;
}

void device_cache_free(struct device_cache *c)
{
    if (c)
        arena_forget(&c->follower);
    free(c);
}

bool device_cache_follow(struct device_cache *c)
{
    struct error e;
    if (!arena_changed(&c->follower))
        return false;
    if (arena_follow(&c->follower, &e))
        log_warn(
            "more of the device's memory cannot be mapped: %s%s", e.text,
            confine_calls_given_up()
                ? "; perhaps the driver needs a system call that the worker gives up when it is "
                  "ready: start moed again with that vram=, or the worker with --no-confine "
                  "(docs/security.md)"
                : "");
    return true;
}

uint64_t device_cache_kv_limit(const struct device_cache *c)
{
    return atomic_load(&c->memory->residency.header->kv_bytes);
}

void device_cache_report_kv(struct device_cache *c, uint64_t bytes)
{
    _Atomic uint64_t *reported = &c->channel->header->kv_bytes;
    if (atomic_load_explicit(reported, memory_order_relaxed) !=
        bytes) /* only this thread writes it */
        atomic_store(reported, bytes);
}

void device_cache_pass(struct device_cache *c, uint64_t step, uint32_t layer)
{
    atomic_store_explicit(&c->channel->header->place, step << 16 | layer, memory_order_relaxed);
}

/* Only this worker writes its epoch. Reads of the residency table must not move before this write.
 */
void device_cache_enter(struct device_cache *c, uint64_t step, uint32_t layer)
{
    device_cache_follow(c);
    device_cache_pass(c, step, layer);
    atomic_fetch_add(&c->channel->header->epoch, 1);
}

void device_cache_leave(struct device_cache *c)
{
    atomic_fetch_add(&c->channel->header->epoch, 1);
}

struct cached_expert device_cache_read(const struct device_cache *c, uint32_t layer,
                                       uint32_t expert)
{
    struct residency r = residency_read(&c->memory->residency, layer, expert);
    uint32_t most = c->memory->map.slabs[layer].n_segments;
    return (struct cached_expert){r.resident < most ? r.resident : most, r.in_flight};
}

static const uint8_t *place_of(const struct device_cache *c, uint32_t slot)
{
    const struct residency_header *h = c->memory->residency.header;
    uint32_t extent = arena_extent_of(h->slots, slot);
    return c->places[extent] +
           (uint64_t)(slot - arena_extent_begin(h->slots, extent)) * h->slot_bytes;
}

const uint8_t *device_cache_place(const struct device_cache *c, uint32_t layer, uint32_t expert,
                                  uint32_t segment)
{
    uint32_t slot =
        atomic_load_explicit(residency_slot(&c->memory->residency, layer, expert, segment),
                             memory_order_acquire); /* the slot may be newer than the word: its
                                                       bytes come with its number */
    return place_of(c, slot);
}

bool device_cache_arriving(const struct device_cache *c, uint32_t layer, uint32_t expert,
                           uint32_t segment, struct cached_arrival *out)
{
    struct residency_arrival a;
    if (!residency_arriving(&c->memory->residency, layer, expert, segment, &a) ||
        a.slot >= residency_n_slots(c->memory->residency.header))
        return false;
    *out = (struct cached_arrival){place_of(c, a.slot), a.slot, a.flag};
    return true;
}

bool device_cache_holds_all(const struct device_cache *c)
{
    return residency_n_slots(c->memory->residency.header) >= c->all_segments;
}

uint64_t device_cache_copies(const struct device_cache *c)
{
    /* acquire: a reader that sees an odd number also sees when that copy began */
    return atomic_load_explicit(&c->memory->residency.header->copies, memory_order_acquire);
}

struct cache_heartbeat device_cache_heartbeat(const struct device_cache *c)
{
    return (struct cache_heartbeat){
        device_cache_copies(c),
        atomic_load_explicit(&c->channel->requests.header->head, memory_order_relaxed)};
}

uint64_t device_cache_changes(const struct device_cache *c)
{
    return atomic_load(&c->memory->residency.header->word_changes);
}

bool device_cache_pinning(const struct device_cache *c)
{
    return atomic_load(&c->memory->residency.header->pinning) != 0;
}

double device_cache_copying_s(const struct device_cache *c)
{
    const struct residency_header *h = c->memory->residency.header;
    uint64_t began = atomic_load_explicit(&h->copy_began_ns, memory_order_relaxed),
             now = clock_ns();
    return now > began ? (double)(now - began) * 1e-9 : 0;
}

bool device_cache_routed(struct device_cache *c, const struct cache_turn *turn,
                         const struct cache_hint *experts, uint32_t n)
{
    return cache_link_routed(&c->channel->requests, turn, experts, n) == n;
}

bool device_cache_predicted(struct device_cache *c, uint64_t step, uint32_t layer,
                            const struct cache_hint *experts, uint32_t n)
{
    return cache_link_hint(&c->channel->requests, CACHE_PREDICTED, step, layer, experts, n) == n;
}

bool device_cache_expected(struct device_cache *c, uint64_t step, uint32_t layer,
                           const struct cache_hint *experts, uint32_t n)
{
    return cache_link_hint(&c->channel->requests, CACHE_EXPECTED, step, layer, experts, n) == n;
}

uint32_t device_cache_reads(const struct device_cache *c)
{
    return atomic_load_explicit(&c->memory->residency.header->cache_reads, memory_order_relaxed);
}

bool device_cache_scores(struct device_cache *c, uint64_t step, uint32_t layer,
                         const struct cache_hint *experts, uint32_t n)
{
    return cache_link_hint(&c->channel->requests, CACHE_SCORES, step, layer, experts, n) == n;
}

bool device_cache_costs(struct device_cache *c, const struct sched_costs *costs, double attention_s,
                        double head_s)
{
    struct cache_record r = {.kind = CACHE_COSTS};
    r.costs.load = (float)costs->load_s;
    r.costs.load_contended = (float)costs->load_contended_s;
    r.costs.device = (float)costs->device_s;
    r.costs.device_token = (float)costs->device_token_s;
    r.costs.cpu = (float)costs->cpu_s;
    r.costs.cpu_token = (float)costs->cpu_token_s;
    r.costs.cpu_contended = (float)costs->cpu_contended_s;
    r.costs.cpu_contended_token = (float)costs->cpu_contended_token_s;
    r.costs.attention = (float)attention_s;
    r.costs.head = (float)head_s;
    return ring_push(&c->channel->requests, &r) == 1;
}

void device_cache_measured(struct device_cache *c)
{
    struct cache_record r = {.kind = CACHE_MEASURED};
    ring_push(&c->channel->requests, &r); /* if the ring is full, a layer's record reports it */
    device_cache_notify(c);
}

bool device_cache_load(struct device_cache *c, uint64_t step, uint32_t layer, uint32_t expert,
                       uint32_t segments)
{
    struct cache_record r = {
        .kind = CACHE_LOAD, .layer = (uint16_t)layer, .step = step, .n_entries = 1};
    r.entries[0] = (struct cache_entry){(uint16_t)expert, (uint16_t)segments};
    return ring_push(&c->channel->requests, &r) == 1;
}

void device_cache_consumed(struct device_cache *c)
{
    atomic_fetch_add(&c->channel->header->consumed, 1);
    ring_notify(&c->channel->requests); /* another load may wait for the free slots */
}

void device_cache_notify(struct device_cache *c)
{
    ring_notify(&c->channel->requests);
}

struct awaited {
    const struct device_cache *cache;
    uint32_t layer, expert, segments;
    bool begun; /* segments in flight count too */
};

static bool arrived(void *arg)
{
    const struct awaited *a = arg;
    struct cached_expert there = device_cache_read(a->cache, a->layer, a->expert);
    return there.resident + (a->begun ? there.in_flight : 0) >= a->segments;
}

void device_cache_wait(struct device_cache *c, uint32_t layer, uint32_t expert, uint32_t segments,
                       struct spinner *spinner, int timeout_ms)
{
    struct awaited a = {c, layer, expert, segments, false};
    doorbell_wait(&c->channel->header->arrivals, arrived, &a, spinner, timeout_ms);
}

void device_cache_wait_begun(struct device_cache *c, uint32_t layer, uint32_t expert,
                             uint32_t segments, struct spinner *spinner, int timeout_ms)
{
    struct awaited a = {c, layer, expert, segments, true};
    doorbell_wait(&c->channel->header->arrivals, arrived, &a, spinner, timeout_ms);
}

struct arrival_wait {
    const struct device_cache *cache;
    uint32_t layer, expert, segment;
    const struct cached_arrival *arrival;
};

/* While a segment is in flight nothing else happens to its expert, but that segments before it
 * arrive. So any other entry now means that it has come. */
static bool has_come(void *arg)
{
    const struct arrival_wait *a = arg;
    struct cached_arrival now;
    return !device_cache_arriving(a->cache, a->layer, a->expert, a->segment, &now) ||
           now.slot != a->arrival->slot || now.flag != a->arrival->flag;
}

bool device_cache_wait_arrived(struct device_cache *c, uint32_t layer, uint32_t expert,
                               uint32_t segment, const struct cached_arrival *arrival,
                               struct spinner *spinner, int timeout_ms)
{
    struct arrival_wait a = {c, layer, expert, segment, arrival};
    return doorbell_wait(&c->channel->header->arrivals, has_come, &a, spinner, timeout_ms);
}
