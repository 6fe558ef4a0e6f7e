/* Copies from host memory, by size, by the way of waiting, and by how many are queued; see bench.h.
 */
#include "bench/device/bench.h"

#include "base/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A matrix of 768 x 2048 in Q4_K, which a segment often has. */
#define SEGMENT_BYTES 884736u
enum { MOST_QUEUED = 8 };

struct copying {
    uint8_t *to, *from;
    size_t bytes, all;
    bool wait;
    struct device_event *events[MOST_QUEUED];
    unsigned n_queued;
};

static void copy_one(void *arg, unsigned turn)
{
    const struct copying *c = arg;
    size_t at = (size_t)turn * c->bytes % (c->all - c->bytes + 1) / 256 * 256;
    module->upload(stream, c->to + at, c->from + at, c->bytes);
    if (c->wait)
        finish();
}

static void copy_within(void *arg, unsigned turn)
{
    const struct copying *c = arg;
    (void)turn;
    module->copy(stream, c->to, c->to + c->all / 2, c->all / 2);
}

static struct copying copying_new(size_t all)
{
    struct copying c = {.all = all};
    struct error e;
    void *from;
    if (module->allocate_pinned(device, all, &from, &e))
        fail(&e);
    memset(from, 1, all);
    c.from = from;
    c.to = allocate(all);
    return c;
}

static void copying_free(struct copying *c)
{
    module->release(device, c->to);
    module->release_pinned(device, c->from);
}

static void copies_of(struct copying *c, size_t bytes)
{
    for (unsigned wait = 0; wait < 2; wait++) {
        char what[64];
        c->bytes = bytes;
        c->wait = wait;
        snprintf(what, sizeof what, "copies of %zu KiB, %s", bytes >> 10,
                 wait ? "each waited for" : "queued");
        double s = measure(copy_one, c);
        print_rate(what, (double)bytes, s, bounds.link);
        if (bytes == 1u << 20 && !simulated)
            printf("figure: copies of 1 MiB %s %.0f %% of the link\n",
                   wait ? "waited for" : "queued", 100 * (double)bytes / s / bounds.link);
    }
}

void bench_copies(void)
{
    struct copying c = copying_new(simulated ? 4u << 20 : 512u << 20);
    static const unsigned kib[] = {64, 256, 512, 1024, 2048, 4096, 16384};
    c.bytes = c.all;
    print_heading("copies from pinned memory");
    bounds.link = (double)c.bytes / measure(copy_one, &c);
    print_rate("one large copy", bounds.link, 1, 0);
    for (unsigned i = 0; i < sizeof kib / sizeof *kib; i++)
        if ((size_t)kib[i] << 10 <= c.all)
            copies_of(&c, (size_t)kib[i] << 10);
    bounds.memory = (double)c.all / measure(copy_within, &c); /* half is read, half written */
    print_rate("memory: a copy within the device", bounds.memory, 1, 0);
    if (!simulated)
        printf("figure: link %.1f GB/s, memory %.0f GB/s\n", bounds.link * 1e-9,
               bounds.memory * 1e-9);
    copying_free(&c);
}

/* ---- Waiting for a copy ---- */

static void wait_asleep(void *arg, unsigned turn)
{
    struct copying *c = arg;
    struct error e;
    copy_one(c, turn);
    module->event_record(c->events[0], stream);
    if (module->event_wait(c->events[0], &e))
        fail(&e);
}

static void poll_event(struct device_event *v)
{
    struct error e;
    for (bool done = false; !done;)
        if (module->event_query(v, &done, &e))
            fail(&e);
}

static void wait_polling(void *arg, unsigned turn)
{
    struct copying *c = arg;
    copy_one(c, turn);
    module->event_record(c->events[0], stream);
    poll_event(c->events[0]);
}

static void wait_in_driver(void *arg, unsigned turn)
{
    copy_one(arg, turn);
    finish();
}

/* Copy number `turn` begins when the one n_queued before it has ended. */
static void keep_queued(void *arg, unsigned turn)
{
    struct copying *c = arg;
    struct device_event *v = c->events[turn % c->n_queued];
    if (turn >= c->n_queued)
        poll_event(v);
    copy_one(c, turn);
    module->event_record(v, stream);
}

void bench_waits(void)
{
    static const struct {
        const char *what;
        void (*work)(void *arg, unsigned turn);
    } waits[] = {{"asleep, for an event", wait_asleep},
                 {"polling an event", wait_polling},
                 {"as the driver waits for a stream", wait_in_driver}};
    struct copying c = copying_new(simulated ? 4u << 20 : 256u << 20);
    struct error e;
    char what[64];
    c.bytes = SEGMENT_BYTES;
    for (unsigned i = 0; i < MOST_QUEUED; i++)
        if (module->event_new(device, &c.events[i], &e))
            fail(&e);
    print_heading("a copy of 0.88 MB, waited for");
    for (unsigned i = 0; i < sizeof waits / sizeof *waits; i++)
        print_time(waits[i].what, measure(waits[i].work, &c), (double)c.bytes / bounds.link);
    for (c.n_queued = 2; c.n_queued <= MOST_QUEUED; c.n_queued *= 2) {
        double s = measure(keep_queued, &c);
        snprintf(what, sizeof what, "%u queued", c.n_queued);
        print_time(what, s, (double)c.bytes / bounds.link);
        if (!simulated && c.n_queued == 4)
            printf("figure: 4 copies of 0.88 MB queued %.0f %% of the link\n",
                   100 * (double)c.bytes / s / bounds.link);
    }
    for (unsigned i = 0; i < MOST_QUEUED; i++)
        module->event_free(c.events[i]);
    copying_free(&c);
}

void bench_pinning(void)
{
    struct error e;
    size_t bytes = simulated ? 1u << 20 : 2ull << 30;
    void *memory = aligned_alloc(4096, bytes);
    if (!memory)
        return;
    memset(memory, 1, bytes);
    uint64_t since = clock_ns();
    if (module->pin(device, memory, bytes, &e)) {
        printf("%-46s %s\n", "pinning host memory", e.text); /* a limit of locked memory, perhaps */
        free(memory);
        return;
    }
    double s = (double)(clock_ns() - since) * 1e-9 / ((double)bytes * 1e-9);
    print_time("pinning host memory, for each GB", s, 0);
    if (!simulated)
        printf("figure: pinning %.3f s a GB\n", s);
    module->unpin(device, memory);
    free(memory);
}
