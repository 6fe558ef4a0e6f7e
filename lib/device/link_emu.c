/* The emulated link: a copy takes as long as on a bus of the given rate, in wall-clock time; see
 * link.h.
 *
 * Each copy has a due time: its start plus bytes / rate. It starts a latency after the call that
 * queued it, but not before the last copy was due: so the latency of a copy that waits in the queue
 * costs nothing. The thread that collects it sleeps, moves the bytes so that they are there just
 * before the due time, and sleeps for the rest. Until then the destination is as it was.
 *
 * A call that comes after the last copy was due counts as if it came then. A thread never wakes
 * exactly on time, and its delays would add up over many copies and make the link slower than its
 * rate. If the caller had nothing to copy in between (device_link_rest), the call counts when it
 * comes.
 *
 * Invariants: due times never decrease; a copy is never collected before its due time. */
#include "base/checked.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/machine_memory.h"
#include "link_internal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

/* The most lateness that later copies make up for. Otherwise a memcpy that is slower than the link,
 * a caller that takes long between copies, or a machine that was stopped would lead to an endless
 * series of copies that take no time. */
#define LATE_MAX_NS 50000000u

struct emu_link {
    struct device_link base;
    double memcpy_ns_per_byte; /* estimate */
    uint64_t due_ns;           /* of the copy queued last; 0: none yet */
    bool checked;              /* the link's rate was compared with the machine's */
};

/* Every machine reaches this rate in one thread. */
#define SURE_BYTES_PER_S 2e9

static void emu_free(struct device_link *l)
{
    free((struct emu_link *)l);
}

static const struct device_module *emu_module(const struct device_link *l)
{
    (void)l;
    return NULL;
}

static void emu_facts(struct device_link *l, struct device_facts *out)
{
    (void)l;
    *out = (struct device_facts){
        .name = "emulated", .memory_bytes = UINT64_MAX, .free_bytes = UINT64_MAX};
}

static void emu_await(struct device_link *l, uint64_t bytes, struct device_facts *out)
{
    (void)bytes;
    emu_facts(l, out);
}

/* memcpy past the caches, as a copy to a device: the destination is not read into a cache first,
 * and evicts nothing from it. */
static void move_bytes(void *to, const void *from, size_t bytes)
{
#ifdef __SSE2__
    if (((uintptr_t)to | bytes) % 64 == 0) {
        __m128i *d = to;
        const __m128i *s = from;
        for (size_t i = 0; i < bytes / sizeof *d; i += 4) {
            __m128i w = _mm_loadu_si128(s + i), x = _mm_loadu_si128(s + i + 1),
                    y = _mm_loadu_si128(s + i + 2), z = _mm_loadu_si128(s + i + 3);
            _mm_stream_si128(d + i, w);
            _mm_stream_si128(d + i + 1, x);
            _mm_stream_si128(d + i + 2, y);
            _mm_stream_si128(d + i + 3, z);
        }
        _mm_sfence(); /* before the message that the bytes are there */
        return;
    }
#endif
    memcpy(to, from, bytes);
}

/* Bytes a second that this thread can move, the best of a few tries; 0: no memory to try with. */
static double moving_rate(void)
{
    enum { BYTES = 8 << 20, TIMES = 3 };
    uint8_t *memory = aligned_alloc(4096, 2 * BYTES);
    double best_s = 0;
    if (!memory)
        return 0;
    memset(memory, 1, 2 * BYTES);
    for (int i = 0; i < TIMES; i++) {
        uint64_t started = clock_ns();
        move_bytes(memory, memory + BYTES, BYTES);
        double took_s = (double)(clock_ns() - started) * 1e-9;
        best_s = best_s > 0 && best_s < took_s ? best_s : took_s;
    }
    free(memory);
    return best_s > 0 ? BYTES / best_s : 0;
}

/* Warns if the link is faster than a thread can move bytes. */
static void check_rate(struct emu_link *l)
{
    double wanted = l->base.spec.link_bytes_per_s;
    l->checked = true;
    if (wanted < SURE_BYTES_PER_S)
        return;
    double rate = moving_rate();
    if (rate > 0 && wanted > 0.8 * rate)
        log_warn("a link of %.1f GB/s: this machine moves %.1f GB/s in one thread, so the emulated "
                 "link will be slower than its option",
                 wanted * 1e-9, rate * 1e-9);
}

/* The arena's memory is one region with a place for every slot that there may ever be; an extent is
 * a part of it. Pages exist only where there was an extent. So workers map all of it once, by
 * the descriptor that the lease passes. */
static enum error_code make_region(struct device_link *l, struct shm *out, struct error *e)
{
    const struct device_arena *a = &l->arena;
    uint64_t slots = a->layout.first + (uint64_t)a->layout.each * (ARENA_EXTENTS - 1), bytes;
    if (!checked_mul(slots, a->slot_bytes, &bytes) ||
        !checked_add(bytes, a->slots_offset, &bytes) || bytes > SIZE_MAX / 2)
        return error_set(e, ERROR_LIMIT, "the device's memory is larger than can be mapped");
    enum error_code code = shm_create_sparse("moed-arena", bytes, out, e);
    return code ? code : shm_seal_writes(out, e); /* this mapping stays writable */
}

/* Touches the pages: the first copy to a slot must take no longer than a later one. */
static enum error_code make_pages(const struct shm *region, uint64_t offset, uint64_t bytes,
                                  struct error *e)
{
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), begin = offset / page * page;
    if (bytes <= memory_available_bytes() &&
        !memory_populate((uint8_t *)region->base + begin, offset + bytes - begin, NULL))
        return ERROR_OK;
    return error_set(
        e, ERROR_MEMORY,
        "no memory for %" PRIu64 " bytes of an emulated device: give it a smaller vram=", bytes);
}

static enum error_code emu_allocate(struct device_link *link, uint64_t bytes,
                                    struct device_extent *p, struct error *e)
{
    struct emu_link *l = (struct emu_link *)link;
    const struct device_arena *a = &link->arena;
    uint64_t offset = 0;
    enum error_code code = ERROR_OK;
    if (!l->checked)
        check_rate(l);
    if (a->n_extents)
        offset =
            a->slots_offset + (uint64_t)arena_extent_begin(a->layout, a->n_extents) * a->slot_bytes;
    else
        code = make_region(link, &p->shared, e);
    const struct shm *region = a->n_extents ? &a->extents[0].shared : &p->shared;
    if (!code)
        code = make_pages(region, offset, bytes, e);
    memcpy(p->handle.bytes, &offset, sizeof offset);
    if (!code)
        p->slots = (uint8_t *)region->base + offset;
    return code;
}

/* The pages of an extent that goes stay: a region that is sealed against new writers keeps them. */
static void emu_release(struct device_link *l, struct device_extent *p)
{
    (void)l;
    shm_close(&p->shared);
}

static void sleep_until(uint64_t ns)
{
    struct timespec t = {.tv_sec = (time_t)(ns / 1000000000u), .tv_nsec = (long)(ns % 1000000000u)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR)
        ;
}

/* Updates the estimate of memcpy's speed; limits the weight of a copy that was interrupted for
 * long. */
static void estimate_memcpy(struct emu_link *l, uint64_t ns, size_t bytes)
{
    if (bytes < 4096)
        return;
    double seen = (double)ns / (double)bytes, limit = 4 * l->memcpy_ns_per_byte;
    l->memcpy_ns_per_byte += ((seen < limit ? seen : limit) - l->memcpy_ns_per_byte) / 8;
}

/* When the copy queued before was or will be made, as later copies count it; 0: the link was idle
 * in between. */
static uint64_t due_before(const struct emu_link *l, uint64_t now)
{
    if (!l->due_ns || (!l->base.n_queued && !l->base.done_ns))
        return 0;
    return now < l->due_ns + LATE_MAX_NS ? l->due_ns : now - LATE_MAX_NS;
}

static uint64_t emu_copying_ns(const struct device_link *link, size_t bytes)
{
    return (uint64_t)(1e9 / link->spec.link_bytes_per_s * (double)bytes);
}

static enum error_code emu_queue(struct device_link *link, uint32_t at, struct error *e)
{
    (void)e; /* the emulated device has no flags */
    struct emu_link *l = (struct emu_link *)link;
    struct link_copy *c = &link->queue[at];
    double latency_ns = link->spec.link_latency_s * 1e9;
    if (l->due_ns == 0) /* once, for the calling thread: the kernel adds up to 50 us to a sleep */
        prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0);
    uint64_t now = c->queued_ns, before = due_before(l, now);
    uint64_t called = before && before < now ? before : now; /* a late call is made up for */
    uint64_t begins = called + (uint64_t)latency_ns;
    if (begins < before)
        begins = before;
    c->due_ns = l->due_ns = begins + emu_copying_ns(link, c->copy.bytes);
    c->early_ns = (uint64_t)(l->memcpy_ns_per_byte * (double)c->copy.bytes);
    return ERROR_OK;
}

static enum error_code emu_collect(struct device_link *link, uint32_t at, struct error *e)
{
    (void)e;
    struct emu_link *l = (struct emu_link *)link;
    const struct link_copy *c = &link->queue[at];
    uint64_t moving = (uint64_t)(l->memcpy_ns_per_byte * (double)c->copy.bytes);
    if (c->due_ns > clock_ns() + moving)
        sleep_until(c->due_ns - moving);
    uint64_t before = clock_ns();
    move_bytes(c->copy.to, c->copy.from, c->copy.bytes);
    uint64_t done = clock_ns();
    estimate_memcpy(l, done - before, c->copy.bytes);
    if (done < c->due_ns)
        sleep_until(c->due_ns);
    return ERROR_OK;
}

/* Only POISON_PART of each POISON_EACH bytes is poisoned: writing all would cost half as much as
 * the copy. It suffices, because a segment is used whole, POISON_PART holds whole tiles of any type
 * with their scales, and a copy goes from the first byte to the last. So a computation with a slot
 * before or during its copy meets poison, except in the last 28 KiB of a segment that is smaller
 * than its slot. */
#define POISON_EACH ((size_t)32 << 10)
#define POISON_PART ((size_t)4 << 10)

static void emu_poison(struct device_link *l, void *memory, size_t bytes)
{
    (void)l;
    uint8_t *at = memory;
    for (; bytes > POISON_EACH; at += POISON_EACH, bytes -= POISON_EACH)
        device_poison(at, POISON_PART);
    device_poison(at, bytes); /* all of the rest */
}

static enum error_code emu_pin(struct device_link *l, const void *memory, size_t bytes,
                               const _Atomic bool *stop, struct error *e)
{
    (void)l, (void)memory, (void)bytes, (void)stop, (void)e;
    return ERROR_OK;
}

enum error_code device_link_emu_new(struct device_link **out, struct error *e)
{
    static const struct device_link_kind kind = {
        .free = emu_free,
        .module = emu_module,
        .facts = emu_facts,
        .await = emu_await,
        .allocate = emu_allocate,
        .release = emu_release,
        .queue = emu_queue,
        .copying_ns = emu_copying_ns,
        .collect = emu_collect,
        .poison = emu_poison,
        .pin = emu_pin,
    };
    struct emu_link *l = calloc(1, sizeof *l);
    if (!l)
        return error_set(e, ERROR_MEMORY, "no memory for the link of the device");
    l->base.kind = &kind;
    l->memcpy_ns_per_byte = 0.2; /* 5 GB/s, until the first copies */
    *out = &l->base;
    return ERROR_OK;
}
