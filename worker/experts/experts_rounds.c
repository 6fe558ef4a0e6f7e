/* A layer's rounds; see experts_internal.h.
 *
 * The worker requests all missing experts of a layer before it computes the first round, so that
 * the reads overlap the computation. It waits outside of its epochs, because these may hold the
 * slots that the reads need. After each round it counts off the experts that it has used, so that a
 * layer that misses more experts than there are slots goes on in more rounds. The rounds do not
 * change the result: each expert's rows are its own.
 */
#include "experts_internal.h"

#include "base/clock.h"

#include <inttypes.h>

#define WAIT_MS 100

static void enter(struct experts *x)
{
    if (x->host)
        host_experts_enter(x->host, x->work.step, x->work.layer);
    if (x->device.cache)
        device_cache_enter(x->device.cache, x->work.step, x->work.layer);
}

static void leave(struct experts *x)
{
    if (x->device.cache)
        device_cache_leave(x->device.cache);
    if (x->host)
        host_experts_leave(x->host);
}

/* Finds an expert. True: it can be computed. */
static bool look_at(struct experts *x, struct activated *a)
{
    a->there = (struct cached_expert){0};
    a->slab = NULL;
    if (x->device.cache)
        a->there = device_cache_read(x->device.cache, x->work.layer, a->expert);
    if (!x->host)
        return true;
    if (host_experts_find(x->host, x->work.layer, a->expert, &a->slot))
        a->slab = host_experts_slab(x->host, a->slot);
    return a->slab ||
           (x->device.cache && a->there.resident == x->memory->map.slabs[x->work.layer].n_segments);
}

/* Moves the remaining experts that can be computed to the front: they are the round. Within the
 * epochs. */
static void choose_round(struct experts *x)
{
    x->work.round = &x->work.activated[x->work.n_done];
    x->work.n_round = 0;
    for (uint32_t i = 0; i < x->work.n_activated - x->work.n_done; i++) {
        struct activated *a = &x->work.round[i];
        if (!look_at(x, a))
            continue;
        struct activated other = x->work.round[x->work.n_round];
        x->work.round[x->work.n_round++] = *a;
        if (a != &x->work.round[x->work.n_round - 1])
            *a = other;
    }
}

/* Requests the remaining experts that were not requested. False: the ring had no place for all. */
static bool request(struct experts *x)
{
    uint32_t n = 0;
    for (uint32_t i = x->work.n_done + x->work.n_round; i < x->work.n_activated; i++)
        if (!x->work.activated[i].fetch)
            x->hints[n++] =
                (struct cache_hint){x->work.activated[i].expert, x->work.activated[i].n_rows};
    if (!n)
        return true;
    uint32_t reported = host_experts_fetch(x->host, x->work.step, x->work.layer, x->hints, n),
             seen = 0;
    for (uint32_t i = x->work.n_done + x->work.n_round; i < x->work.n_activated && seen < reported;
         i++) {
        struct activated *a = &x->work.activated[i];
        if (a->fetch)
            continue;
        x->work.fetch_used[x->work.n_fetches] = false;
        a->fetch = ++x->work.n_fetches;
        seen++;
    }
    host_experts_notify(x->host);
    return reported == n;
}

void experts_first_round(struct experts *x)
{
    x->work.n_done = 0;
    x->work.n_fetches = x->work.n_fetched = 0;
    for (uint32_t i = 0; i < x->work.n_activated; i++) {
        struct activated *a = &x->work.activated[i];
        a->fetch = 0;
        if (x->host)
            a->failures = host_experts_failures(x->host, x->work.layer, a->expert);
    }
    enter(x);
    choose_round(x);
    if (!x->host)
        return;
    counter_add(x->counters.found_in_memory, x->work.n_round);
    counter_add(x->counters.found_on_disk, x->work.n_activated - x->work.n_round);
    request(x);
}

/* Counts off the used fetches, in the order of their requests, up to the first unused one. */
static void count_off(struct experts *x)
{
    uint32_t before = x->work.n_fetched;
    while (x->work.n_fetched < x->work.n_fetches && x->work.fetch_used[x->work.n_fetched])
        x->work.n_fetched++;
    host_experts_count(x->host, x->work.n_fetched - before);
}

void experts_end_round(struct experts *x)
{
    x->work.n_done += x->work.n_round;
    if (!x->host)
        return;
    host_experts_leave(x->host);
    for (uint32_t i = 0; i < x->work.n_round; i++)
        if (x->work.round[i].fetch)
            x->work.fetch_used[x->work.round[i].fetch - 1] = true;
    count_off(x);
}

/* A remaining expert whose read has failed in this layer; NULL: none. */
static const struct activated *failed_one(const struct experts *x)
{
    uint32_t slot;
    for (uint32_t i = x->work.n_done; i < x->work.n_activated; i++) {
        const struct activated *a = &x->work.activated[i];
        if (host_experts_failures(x->host, x->work.layer, a->expert) != a->failures &&
            !host_experts_find(x->host, x->work.layer, a->expert,
                               &slot)) /* else another worker's request succeeded */
            return a;
    }
    return NULL;
}

/* An expert has arrived, or a wait is of no use. */
static bool news(void *arg)
{
    const struct experts *x = arg;
    uint32_t slot;
    for (uint32_t i = x->work.n_done; i < x->work.n_activated; i++)
        if (host_experts_find(x->host, x->work.layer, x->work.activated[i].expert, &slot))
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
    host_experts_count(x->host, x->work.n_fetches - x->work.n_fetched);
    x->work.n_fetched = x->work.n_fetches;
    if (atomic_load(&x->stopping))
        return error_set(e, ERROR_UNAVAILABLE, "the worker is stopping: try again");
    if (failed)
        return error_set(e, ERROR_IO,
                         "the model file cannot be read (layer %" PRIu32 ", expert %" PRIu32
                         "): memd's log says why",
                         x->work.layer, failed->expert);
    return error_set(e, ERROR_TIMEOUT,
                     "the model file was not read for %" PRIu32 " s (layer %" PRIu32
                     "): the disk does not answer, or memd or another worker is stopped",
                     x->disk_stall_ms / 1000, x->work.layer);
}

static enum error_code wait_for_round(struct experts *x, struct error *e)
{
    uint64_t since = clock_ns(), progress = host_experts_progress(x->host);
    for (;;) {
        const struct activated *failed = failed_one(x);
        if (failed || atomic_load(&x->stopping))
            return give_up(x, failed, e);
        enter(x);
        choose_round(x);
        if (x->work.n_round)
            return ERROR_OK;
        leave(x);
        bool reported = request(x);
        uint64_t now = host_experts_progress(x->host);
        if (now != progress) {
            progress = now;
            since = clock_ns();
            heartbeat_beat(x->heartbeat);
        } else if (clock_ns() - since > x->disk_stall_ms * 1000000ull) {
            return give_up(x, NULL, e);
        }
        host_experts_wait(x->host, news, x, &x->disk_spinner, reported ? WAIT_MS : 1);
    }
}

enum error_code experts_next_round(struct experts *x, struct error *e)
{
    uint64_t started = clock_ns();
    enum error_code code = wait_for_round(x, e);
    uint64_t waited_ns = clock_ns() - started;
    x->work.disk_wait_ns += waited_ns;
    x->disk_wait_ns += waited_ns;
    return code;
}

void experts_count_disk_wait(struct experts *x, bool prompts)
{
    if (x->host)
        counter_add(prompts ? x->counters.disk_wait_prefill_ns : x->counters.disk_wait_decode_ns,
                    x->disk_wait_ns);
    x->disk_wait_ns = 0;
}
