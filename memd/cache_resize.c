/* More or fewer slots while serving; see cache.h and ipc/arena_follow.h.
 *
 * There is an aim, and each turn of the engine takes a step towards it, as far as that goes without waiting. Which
 * step is found anew each time from what there is, so the aim may change at any moment:
 *
 *     the aim leaves less for the KV cache       its limit falls; on when every worker is below it
 *     pieces that are not as the aim has them    their slots are used no more, what they hold is evicted; when nobody can still
 *                                                read there they are withdrawn; when every worker has closed them they go
 *     pieces that the aim has more               each is allocated and shown; when every worker has them all, their slots are
 *                                                used
 *     nothing is missing                         the limit of the KV cache is what the aim leaves: done
 *
 * The last piece may be smaller than the others; where the aim needs it larger or smaller, it goes and another one
 * comes.
 *
 * Invariants:
 * 1. Slots before the limit (cache_slots.h) lie in pieces that every worker has.
 * 2. Pieces that are withdrawn go, even if the aim has them again meanwhile. They are the arena's last ones.
 */
#include "cache_internal.h"

#include "base/clock.h"
#include "base/log.h"

#include <inttypes.h>
#include <string.h>

/* What a worker gives up, or leaves when it ends, may be free a moment later. */
#define SHORT_NS 3000000000u
#define RETRY_NS 50000000u

/* ---- Pieces and workers ---- */

static struct residency_header *header(const struct cache *c)
{
    return c->residency.base;
}

static void count_change(struct cache *c)
{
    atomic_fetch_add_explicit(&header(c)->changes, 1, memory_order_release); /* A2, W2 */
}

void cache_show_pieces(struct cache *c)
{
    for (; c->n_shown < c->arena->n_pieces; c->n_shown++) {
        const struct device_piece *from = &c->arena->pieces[c->n_shown];
        struct residency_piece *to = &header(c)->pieces[c->n_shown];
        to->n_slots = from->n_slots;
        memcpy(to->handle, from->handle.bytes, sizeof to->handle);
        c->last_serial += c->last_serial == UINT32_MAX ? 2 : 1;
        atomic_store_explicit(&to->serial, c->last_serial, memory_order_release); /* A1 */
        count_change(c);
    }
}

static void withdraw_pieces(struct cache *c, uint32_t kept)
{
    while (c->n_shown > kept)
        atomic_store_explicit(&header(c)->pieces[--c->n_shown].serial, 0, memory_order_release);
    count_change(c);
}

/* A3, W3. */
static bool all_have_followed(const struct cache *c)
{
    uint64_t changes = atomic_load_explicit(&header(c)->changes, memory_order_relaxed);
    for (int i = 0; i < CACHE_MAX_WORKERS; i++) {
        const struct cache_worker *w = &c->workers[i];
        if (w->present && atomic_load_explicit(&w->channel.header->arena_seen,
                                               memory_order_acquire) < changes)
            return false;
    }
    return true;
}

/* Somebody cannot map what is shown now. */
static bool one_refuses(const struct cache *c)
{
    uint64_t changes = atomic_load_explicit(&header(c)->changes, memory_order_relaxed);
    for (int i = 0; i < CACHE_MAX_WORKERS; i++) {
        const struct cache_worker *w = &c->workers[i];
        if (w->present && atomic_load_explicit(&w->channel.header->arena_refused,
                                               memory_order_acquire) == changes)
            return true;
    }
    return false;
}

static bool kv_is_below(const struct cache *c, uint64_t bytes)
{
    for (int i = 0; i < CACHE_MAX_WORKERS; i++) {
        const struct cache_worker *w = &c->workers[i];
        if (w->present && atomic_load(&w->channel.header->kv_bytes) > bytes) /* K2 */
            return false;
    }
    return true;
}

/* ---- Steps ---- */

/* Back to what was used before; where that cannot be had either, it stays at what is used now. */
static void fall_short(struct cache *c, const struct error *why)
{
    struct cache_aim *aim = &c->aim;
    bool back = !aim->failed.code && aim->before > c->slots.limit && aim->before < aim->slots;
    if (!aim->failed.code)
        aim->failed = *why;
    aim->slots = back ? aim->before : c->slots.limit;
    aim->short_ns = 0;
}

/* Leading pieces that are as the aim has them. The first is always so. */
static uint32_t kept_pieces(const struct cache *c)
{
    const struct device_arena *a = c->arena;
    uint32_t most = arena_pieces(a->layout, c->aim.slots), kept = 1;
    most = most < c->n_shown ? most : c->n_shown;
    while (kept < most &&
           a->pieces[kept].n_slots == arena_piece_slots(a->layout, kept, c->aim.slots))
        kept++;
    return kept;
}

/* What an expert has in slots from n on goes, and what comes after it, for what is resident is a prefix. */
static void evict_from(struct cache *c, uint32_t n)
{
    for (uint32_t layer = 0; layer < c->table.n_layers; layer++)
        for (uint32_t expert = 0; expert < cache_slabs(c, layer)->n_experts; expert++) {
            uint32_t resident = sched_copies_resident(c->copies, layer, expert), keep = 0;
            while (keep < resident &&
                   atomic_load(residency_slot(&c->table, layer, expert, keep)) < n)
                keep++;
            if (keep < resident)
                sched_copies_shorten(c->copies, layer, expert, keep);
        }
}

/* True: nothing lies in slots from n on any more. */
static bool empty_slots(struct cache *c, uint32_t n)
{
    struct error e;
    if (c->slots.limit > n && cache_use_slots(c, n, &e)) {
        fall_short(c, &e);
        return false;
    }
    if (cache_slots_empty_from(&c->slots, n))
        return true;
    evict_from(c, n);
    cache_slots_reclaim(&c->slots);
    return cache_slots_empty_from(&c->slots, n);
}

/* True: no piece is left but the first `kept`. */
static bool drop_pieces(struct cache *c, uint32_t kept)
{
    if (c->n_shown > kept)
        withdraw_pieces(c, kept);
    if (!all_have_followed(c))
        return false;
    while (c->arena->n_pieces > kept)
        device_link_drop_piece(c->link); /* W4 */
    return true;
}

static void limit_kv(struct cache *c, uint64_t bytes)
{
    atomic_store(&header(c)->kv_bytes, bytes); /* K1 */
}

/* True: it may be had later. */
static bool tries_again(struct cache_aim *aim)
{
    uint64_t now = clock_ns();
    aim->short_ns = aim->short_ns ? aim->short_ns : now;
    aim->retry_ns = now + RETRY_NS;
    return now - aim->short_ns < SHORT_NS;
}

/* One piece more. If it is not wanted any more when it is there, it goes as others do. */
static enum cache_resize_wait add_piece(struct cache *c)
{
    uint32_t n = arena_piece_slots(c->arena->layout, c->arena->n_pieces, c->aim.slots);
    uint64_t number = c->aim.number;
    struct error e;
    if (c->aim.short_ns && clock_ns() < c->aim.retry_ns)
        return CACHE_RESIZE_MEMORY;
    pthread_mutex_unlock(&c->lock);
    enum error_code code = device_link_add_piece(c->link, n, &e);
    pthread_mutex_lock(&c->lock);
    if (!code) {
        cache_show_pieces(c);
        c->aim.short_ns = 0;
    } else if (c->aim.number == number) { /* else it may not be wanted any more */
        if (code == ERROR_MEMORY && tries_again(&c->aim))
            return CACHE_RESIZE_MEMORY;
        fall_short(c, &e);
    }
    return CACHE_RESIZE_NOTHING;
}

static void settle(struct cache *c)
{
    struct cache_aim *aim = &c->aim;
    limit_kv(c, device_plan_kv(&c->plan, aim->slots));
    aim->busy = false;
    if (aim->failed.code)
        log_warn("the expert cache stays at %" PRIu32 " slots: %s", c->slots.limit,
                 aim->failed.text);
    else
        log_info("the expert cache has %" PRIu32 " slots of %" PRIu64 " bytes now, %" PRIu32
                 " of them kept free for loads",
                 c->slots.limit, c->slots.slot_bytes, c->reserve);
}

/* A step; what it waits for, NOTHING where the next can be taken at once. */
static enum cache_resize_wait step(struct cache *c)
{
    struct cache_aim *aim = &c->aim;
    const struct device_arena *a = c->arena;
    uint32_t kept = kept_pieces(c);
    uint32_t there = arena_piece_begin(a->layout, kept - 1) + a->pieces[kept - 1].n_slots;
    uint64_t kv = device_plan_kv(&c->plan, aim->slots);
    if (kv < atomic_load(&header(c)->kv_bytes))
        limit_kv(c, kv);
    bool more = kept < arena_pieces(a->layout, aim->slots);
    if (more && !kv_is_below(c, kv))
        return CACHE_RESIZE_KV;
    if (!empty_slots(c, aim->slots < there ? aim->slots : there))
        return CACHE_RESIZE_USE;
    if (a->n_pieces > kept && !drop_pieces(c, kept))
        return CACHE_RESIZE_CLOSE;
    struct error e;
    if (more)
        return add_piece(c);
    if (!all_have_followed(c)) {
        if (!one_refuses(c))
            return CACHE_RESIZE_MAP;
        error_set(&e, ERROR_MEMORY, "a worker cannot map more of the device's memory: its log says why");
        fall_short(c, &e);
        return CACHE_RESIZE_NOTHING;
    }
    if (c->slots.limit < aim->slots && cache_use_slots(c, aim->slots, &e))
        fall_short(c, &e);
    else
        settle(c);
    return CACHE_RESIZE_NOTHING;
}

void cache_resize_step(struct cache *c)
{
    if (c->aim.busy) /* one step: loads are not to wait for all of them */
        c->aim.waits = step(c);
}

/* ---- The interface ---- */

uint64_t cache_resize(struct cache *c, uint32_t n_slots)
{
    pthread_mutex_lock(&c->lock);
    uint64_t number = c->aim.number + 1;
    c->aim = (struct cache_aim){
        .busy = true, .number = number, .slots = n_slots, .before = c->slots.limit};
    pthread_mutex_unlock(&c->lock);
    doorbell_ring(&c->bell);
    return number;
}

void cache_resize_state(struct cache *c, struct cache_resize_state *out)
{
    pthread_mutex_lock(&c->lock);
    const struct cache_aim *aim = &c->aim;
    *out = (struct cache_resize_state){aim->number, aim->busy, aim->waits, aim->failed};
    pthread_mutex_unlock(&c->lock);
}
