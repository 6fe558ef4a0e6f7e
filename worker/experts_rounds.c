/* A layer's rounds; see experts_internal.h.
 *
 * What is missing of a layer is asked for at once, before its first round is computed, so that the disk works meanwhile. The
 * worker waits outside of its epochs, for the room of what it waits for may be what they hold back; and it counts off
 * what it has used after each round, so that a layer which misses more than there are slots goes on in as many rounds
 * as it takes. Who is computed in which round never shows: each expert's rows are its own.
 */
#include "experts_internal.h"

#include "base/clock.h"

#include <inttypes.h>

#define WAIT_MS  100
#define STALL_MS 10000 /* without any read having ended */

static void enter(struct experts *x)
{
    if (x->host)
        host_experts_enter(x->host, x->step, x->layer);
    if (x->cache)
        device_cache_enter(x->cache, x->step, x->layer);
}

static void leave(struct experts *x)
{
    if (x->cache)
        device_cache_leave(x->cache);
    if (x->host)
        host_experts_leave(x->host);
}

/* Where an expert is now. True: it can be computed. */
static bool look_at(struct experts *x, struct activated *a)
{
    a->there = (struct cached_expert){0};
    a->slab = NULL;
    if (x->cache)
        a->there = device_cache_read(x->cache, x->layer, a->expert);
    if (!x->host)
        return true;
    if (host_experts_find(x->host, x->layer, a->expert, &a->slot))
        a->slab = host_experts_slab(x->host, a->slot);
    return a->slab || (x->cache && a->there.resident == x->memory->map.slabs[x->layer].n_segments);
}

/* Of the experts that are left those that can be computed come first: they are the round. Within the epochs. */
static void choose_round(struct experts *x)
{
    x->round = &x->activated[x->n_done];
    x->n_round = 0;
    for (uint32_t i = 0; i < x->n_activated - x->n_done; i++) {
        struct activated *a = &x->round[i];
        if (!look_at(x, a))
            continue;
        struct activated other = x->round[x->n_round];
        x->round[x->n_round++] = *a;
        if (a != &x->round[x->n_round - 1])
            *a = other;
    }
}

/* Asks for what is left and was not asked for. False: not all of it could be said now. */
static bool ask(struct experts *x)
{
    uint32_t n = 0;
    for (uint32_t i = x->n_done + x->n_round; i < x->n_activated; i++)
        if (!x->activated[i].fetch)
            x->mentions[n++] =
                (struct cache_mention){x->activated[i].expert, x->activated[i].n_rows};
    if (!n)
        return true;
    uint32_t said = host_experts_fetch(x->host, x->step, x->layer, x->mentions, n), seen = 0;
    for (uint32_t i = x->n_done + x->n_round; i < x->n_activated && seen < said; i++) {
        struct activated *a = &x->activated[i];
        if (a->fetch)
            continue;
        x->fetch_used[x->n_fetches] = false;
        a->fetch = ++x->n_fetches;
        seen++;
    }
    host_experts_notify(x->host);
    return said == n;
}

void experts_first_round(struct experts *x)
{
    x->n_done = 0;
    x->n_fetches = x->n_fetched = 0;
    for (uint32_t i = 0; i < x->n_activated; i++) {
        struct activated *a = &x->activated[i];
        a->fetch = 0;
        if (x->host)
            a->failures = host_experts_failures(x->host, x->layer, a->expert);
    }
    enter(x);
    choose_round(x);
    if (!x->host)
        return;
    counter_add(x->counters.found_in_memory, x->n_round);
    counter_add(x->counters.found_on_disk, x->n_activated - x->n_round);
    ask(x);
}

/* Counts off the fetches that have been used: the first ones, in the order in which they were asked for. */
static void count_off(struct experts *x)
{
    uint32_t before = x->n_fetched;
    while (x->n_fetched < x->n_fetches && x->fetch_used[x->n_fetched])
        x->n_fetched++;
    host_experts_count(x->host, x->n_fetched - before);
}

void experts_end_round(struct experts *x)
{
    x->n_done += x->n_round;
    if (!x->host)
        return;
    host_experts_leave(x->host);
    for (uint32_t i = 0; i < x->n_round; i++)
        if (x->round[i].fetch)
            x->fetch_used[x->round[i].fetch - 1] = true;
    count_off(x);
}

/* Of the experts that are left one whose reading has failed since it was asked for; NULL: none. */
static const struct activated *failed_one(const struct experts *x)
{
    uint32_t slot;
    for (uint32_t i = x->n_done; i < x->n_activated; i++) {
        const struct activated *a = &x->activated[i];
        if (host_experts_failures(x->host, x->layer, a->expert) != a->failures &&
            !host_experts_find(x->host, x->layer, a->expert, &slot)) /* somebody else had it read */
            return a;
    }
    return NULL;
}

/* Something has come, or will not. */
static bool news(void *arg)
{
    const struct experts *x = arg;
    uint32_t slot;
    for (uint32_t i = x->n_done; i < x->n_activated; i++)
        if (host_experts_find(x->host, x->layer, x->activated[i].expert, &slot))
            return true;
    return failed_one(x) != NULL || atomic_load(&x->stopping);
}

void experts_stop(struct experts *x)
{
    atomic_store(&x->stopping, true);
    if (x->host)
        host_experts_wake(x->host);
}

static enum error_code give_up(struct experts *x, const struct activated *failed, struct error *e)
{
    host_experts_count(x->host, x->n_fetches - x->n_fetched);
    x->n_fetched = x->n_fetches;
    if (atomic_load(&x->stopping))
        return error_set(e, ERROR_UNAVAILABLE, "the worker is stopping: try again");
    if (failed)
        return error_set(e, ERROR_IO,
                         "the model file cannot be read (layer %" PRIu32 ", expert %" PRIu32
                         "): memd's log says why",
                         x->layer, failed->expert);
    return error_set(e, ERROR_TIMEOUT,
                     "the model file was not read for %d s (layer %" PRIu32
                     "): the disk does not answer, or memd or another worker is stopped",
                     STALL_MS / 1000, x->layer);
}

static enum error_code wait_for_round(struct experts *x, struct error *e)
{
    uint64_t since = clock_ns(), reads = host_experts_reads(x->host);
    for (;;) {
        const struct activated *failed = failed_one(x);
        if (failed || atomic_load(&x->stopping))
            return give_up(x, failed, e);
        enter(x);
        choose_round(x);
        if (x->n_round)
            return ERROR_OK;
        leave(x);
        bool said = ask(x);
        uint64_t now = host_experts_reads(x->host);
        if (now != reads) {
            reads = now;
            since = clock_ns();
        } else if (clock_ns() - since > STALL_MS * 1000000ull) {
            return give_up(x, NULL, e);
        }
        host_experts_wait(x->host, news, x, x->options.spin_us, said ? WAIT_MS : 1);
    }
}

enum error_code experts_next_round(struct experts *x, struct error *e)
{
    uint64_t started = clock_ns();
    enum error_code code = wait_for_round(x, e);
    uint64_t waited_ns = clock_ns() - started;
    x->disk_wait_ns += waited_ns;
    counter_add(x->one_request ? x->counters.disk_wait_prefill_ns : x->counters.disk_wait_decode_ns,
                waited_ns);
    return code;
}
