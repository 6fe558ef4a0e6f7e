/* More or fewer slots while serving; see cache.h and ipc/arena_follow.h.
 *
 * cache_resize sets an aim. Each turn of the engine takes a step towards it, as far as that goes
 * without waiting. The step follows from the present state, so the aim may change at any moment:
 *
 *     the aim leaves less for the KV cache    lower its limit; wait until every worker is below it
 *     extents that the aim does not have      stop using their slots and evict what they hold; when
 *                                             no worker can still read there, withdraw the extents;
 *                                             when every worker has closed them, free them
 *     extents that the aim has more           allocate and show each; when every worker has mapped
 *                                             all, use their slots
 *     none of these                           set the limit of the KV cache to the rest: done
 *
 * The last extent may be smaller than the others. Where the aim needs it larger or smaller, another
 * one replaces it.
 *
 * Invariants:
 * 1. Slots before the limit (cache_slots.h) lie in extents that every worker has.
 * 2. Extents that are withdrawn go, even if the aim has them again by then. They are the arena's
 *    last ones. */
#include "cache_internal.h"

#include "base/clock.h"
#include "base/log.h"

#include <inttypes.h>
#include <string.h>

/* How long to try for device memory: what a worker gives up, or leaves at its end, may be free a
 * moment later. */
#define SHORT_NS 3000000000u
#define RETRY_NS 50000000u

/* ---- Extents and workers ---- */

static struct residency_header *header(const struct cache *c)
{
    return c->residency.base;
}

static void count_change(struct cache *c)
{
    atomic_fetch_add_explicit(&header(c)->changes, 1, memory_order_release); /* A2, W2 */
}

void cache_show_extents(struct cache *c)
{
    for (; c->n_shown < c->arena->n_extents; c->n_shown++) {
        const struct device_extent *from = &c->arena->extents[c->n_shown];
        struct residency_extent *to = &header(c)->extents[c->n_shown];
        to->n_slots = from->n_slots;
        memcpy(to->handle, from->handle.bytes, sizeof to->handle);
        c->last_serial += c->last_serial == UINT32_MAX ? 2 : 1;
        atomic_store_explicit(&to->serial, c->last_serial, memory_order_release); /* A1 */
        count_change(c);
    }
}

static void withdraw_extents(struct cache *c, uint32_t kept)
{
    while (c->n_shown > kept)
        atomic_store_explicit(&header(c)->extents[--c->n_shown].serial, 0, memory_order_release);
    count_change(c);
}

/* A3, W3. */
static bool all_have_followed(const struct cache *c)
{
    uint64_t changes = atomic_load_explicit(&header(c)->changes, memory_order_relaxed);
    for (int i = 0; i < CACHE_MAX_WORKERS; i++) {
        const struct cache_worker *w = &c->server.workers[i];
        if (w->present &&
            atomic_load_explicit(&w->channel.header->arena_seen, memory_order_acquire) < changes)
            return false;
    }
    return true;
}

/* True: a worker cannot map an extent that is shown now. */
static bool one_refuses(const struct cache *c)
{
    uint64_t changes = atomic_load_explicit(&header(c)->changes, memory_order_relaxed);
    for (int i = 0; i < CACHE_MAX_WORKERS; i++) {
        const struct cache_worker *w = &c->server.workers[i];
        if (w->present && atomic_load_explicit(&w->channel.header->arena_refused,
                                               memory_order_acquire) == changes)
            return true;
    }
    return false;
}

static bool kv_is_below(const struct cache *c, uint64_t bytes)
{
    for (int i = 0; i < CACHE_MAX_WORKERS; i++) {
        const struct cache_worker *w = &c->server.workers[i];
        if (w->present && atomic_load(&w->channel.header->kv_bytes) > bytes) /* K2 */
            return false;
    }
    return true;
}

/* ---- Steps ---- */

/* Aims at the slots that were used before; if that fails too, at those in use now. */
static void fall_short(struct cache *c, const struct error *why)
{
    struct cache_aim *aim = &c->aim;
    bool back =
        !aim->failed.code && aim->before > c->server.slots.limit && aim->before < aim->slots;
    if (!aim->failed.code)
        aim->failed = *why;
    aim->slots = back ? aim->before : c->server.slots.limit;
    aim->short_ns = 0;
}

/* The number of leading extents that are as the aim has them. The first always is. */
static uint32_t kept_extents(const struct cache *c)
{
    const struct device_arena *a = c->arena;
    uint32_t most = arena_extents(a->layout, c->aim.slots), kept = 1;
    most = most < c->n_shown ? most : c->n_shown;
    while (kept < most &&
           a->extents[kept].n_slots == arena_extent_slots(a->layout, kept, c->aim.slots))
        kept++;
    return kept;
}

/* Evicts each expert's segments in slots from n on, and its segments after those: what is resident
 * is a prefix. */
static void evict_from(struct cache *c, uint32_t n)
{
    for (uint32_t layer = 0; layer < c->table.n_layers; layer++)
        for (uint32_t expert = 0; expert < cache_slabs(c, layer)->n_experts; expert++) {
            uint32_t resident = transfer_scheduler_resident(c->transfers, layer, expert), keep = 0;
            while (keep < resident &&
                   atomic_load(residency_slot(&c->table, layer, expert, keep)) < n)
                keep++;
            if (keep < resident)
                transfer_scheduler_shorten(c->transfers, layer, expert, keep);
        }
}

/* True: all slots from n on are empty. */
static bool empty_slots(struct cache *c, uint32_t n)
{
    struct error e;
    bool fewer = c->server.slots.limit > n;
    if (fewer && cache_use_slots(c, n, &e)) {
        fall_short(c, &e);
        return false;
    }
    /* What is better and has to leave its slot finds a free one. Not where the last extent makes
     * way for a larger one: then there are soon more slots than before. */
    if (fewer && c->aim.slots < c->aim.before)
        transfer_scheduler_keep_best(c->transfers, n - c->reserve);
    if (cache_slots_empty_from(&c->server.slots, n))
        return true;
    evict_from(c, n);
    cache_slots_reclaim(&c->server.slots);
    return cache_slots_empty_from(&c->server.slots, n);
}

/* True: only the first `kept` extents are left. */
static bool drop_extents(struct cache *c, uint32_t kept)
{
    if (c->n_shown > kept)
        withdraw_extents(c, kept);
    if (!all_have_followed(c))
        return false;
    while (c->arena->n_extents > kept)
        device_link_drop_extent(c->link); /* W4 */
    return true;
}

static void limit_kv(struct cache *c, uint64_t bytes)
{
    atomic_store(&header(c)->kv_bytes, bytes); /* K1 */
}

/* True: the memory may be free later. */
static bool tries_again(struct cache_aim *aim)
{
    uint64_t now = clock_ns();
    aim->short_ns = aim->short_ns ? aim->short_ns : now;
    aim->retry_ns = now + RETRY_NS;
    return now - aim->short_ns < SHORT_NS;
}

/* Adds an extent. If the aim has changed by the time it is there, it goes like any other. */
static enum cache_resize_wait add_extent(struct cache *c)
{
    uint32_t n = arena_extent_slots(c->arena->layout, c->arena->n_extents, c->aim.slots);
    uint64_t number = c->aim.number;
    struct error e;
    if (c->aim.short_ns && clock_ns() < c->aim.retry_ns)
        return CACHE_RESIZE_MEMORY;
    pthread_mutex_unlock(&c->server.lock);
    enum error_code code = device_link_add_extent(c->link, n, &e);
    pthread_mutex_lock(&c->server.lock);
    if (!code) {
        cache_show_extents(c);
        c->aim.short_ns = 0;
    } else if (c->aim.number == number) { /* else the aim has changed */
        if (code == ERROR_MEMORY && tries_again(&c->aim))
            return CACHE_RESIZE_MEMORY;
        fall_short(c, &e);
    }
    return CACHE_RESIZE_NOTHING;
}

static void settle(struct cache *c)
{
    struct cache_aim *aim = &c->aim;
    limit_kv(c, device_share_worker_kv(&c->plan, aim->slots));
    aim->busy = false;
    if (aim->failed.code)
        log_warn("the expert cache stays at %" PRIu32 " slots: %s", c->server.slots.limit,
                 aim->failed.text);
    else
        log_info("the expert cache has %" PRIu32 " slots of %" PRIu64 " bytes now, %" PRIu32
                 " of them kept free for loads",
                 c->server.slots.limit, c->server.slots.slot_bytes, c->reserve);
}

/* Takes a step. Returns what the next one waits for; NOTHING: it can be taken at once. */
static enum cache_resize_wait step(struct cache *c)
{
    struct cache_aim *aim = &c->aim;
    const struct device_arena *a = c->arena;
    uint32_t kept = kept_extents(c);
    uint32_t there = arena_extent_begin(a->layout, kept - 1) + a->extents[kept - 1].n_slots;
    uint64_t kv = device_share_worker_kv(&c->plan, aim->slots);
    if (kv < atomic_load(&header(c)->kv_bytes))
        limit_kv(c, kv);
    bool more = kept < arena_extents(a->layout, aim->slots);
    if (more && !kv_is_below(c, kv))
        return CACHE_RESIZE_KV;
    if (!empty_slots(c, aim->slots < there ? aim->slots : there))
        return CACHE_RESIZE_USE;
    if (a->n_extents > kept && !drop_extents(c, kept))
        return CACHE_RESIZE_CLOSE;
    struct error e;
    if (more)
        return add_extent(c);
    if (!all_have_followed(c)) {
        if (!one_refuses(c))
            return CACHE_RESIZE_MAP;
        error_set(&e, ERROR_MEMORY,
                  "a worker cannot map more of the device's memory: its log says why");
        fall_short(c, &e);
        return CACHE_RESIZE_NOTHING;
    }
    if (c->server.slots.limit < aim->slots && cache_use_slots(c, aim->slots, &e))
        fall_short(c, &e);
    else
        settle(c);
    return CACHE_RESIZE_NOTHING;
}

void cache_resize_step(struct cache *c)
{
    if (c->aim.busy) /* one step: loads must not wait for all of them */
        c->aim.waits = step(c);
}

/* ---- The interface ---- */

uint64_t cache_resize(struct cache *c, uint32_t n_slots)
{
    pthread_mutex_lock(&c->server.lock);
    uint64_t number = c->aim.number + 1;
    c->aim = (struct cache_aim){
        .busy = true, .number = number, .slots = n_slots, .before = c->server.slots.limit};
    pthread_mutex_unlock(&c->server.lock);
    doorbell_ring(&c->server.bell);
    return number;
}

void cache_resize_state(struct cache *c, struct cache_resize_state *out)
{
    pthread_mutex_lock(&c->server.lock);
    const struct cache_aim *aim = &c->aim;
    *out = (struct cache_resize_state){aim->number, aim->busy, aim->waits, aim->failed};
    pthread_mutex_unlock(&c->server.lock);
}
