/* A CUDA device's memory and copies to it, through the device module; see link.h. Only the copying
 * thread uses the stream. */
#include "base/checked.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/quantity.h"
#include "link_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* The wait for memory: a killed memd's arena is free only after the last worker that mapped it has
 * ended. */
#define WAIT_NS 10000000000ull
/* One call registers at most this much, in parts that begin at multiples of it: other calls may
 * wait while the driver registers memory. A copy must not begin in one part and end in another. */
#define PIN_BYTES (1ull << 30)
/* Without vram= the arena takes all free memory, so memd waits until it has not changed for this
 * long. */
#define SETTLED_NS 500000000ull
/* A thread that sleeps wakes up some 50 us late, which is longer than many a copy. So the end of a
 * short copy is polled for, and that of a long one from this much before it is expected. A wait
 * that takes longer than expected sleeps. */
#define POLL_NS  100000u
#define EARLY_NS 60000u
/* Of a link that has copied nothing yet: 25 GB/s. At least: 200 GB/s. */
#define FIRST_NS_PER_BYTE 0.04
#define LEAST_NS_PER_BYTE 0.005

struct cuda_link {
    struct device_link base;
    const struct device_module *module;
    struct device *device;
    struct device_stream *stream;
    struct device_event *events[DEVICE_LINK_QUEUE]; /* behind the copy at that place of the queue */
    double ns_per_byte;                             /* estimate */
    bool poisons;
};

static void cuda_free(struct device_link *link)
{
    struct cuda_link *l = (struct cuda_link *)link;
    if (l->device) {
        for (uint32_t i = 0; i < DEVICE_LINK_QUEUE; i++)
            l->module->event_free(l->events[i]);
        l->module->stream_free(l->stream);
        l->module->close(l->device); /* unpins too */
    }
    free(l);
}

static const struct device_module *cuda_module(const struct device_link *link)
{
    return ((const struct cuda_link *)link)->module;
}

static void cuda_facts(struct device_link *link, struct device_facts *out)
{
    struct cuda_link *l = (struct cuda_link *)link;
    l->module->facts(l->device, out);
}

static void nap(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
}

static void report_wait(const struct device_link *link, const struct device_facts *facts,
                        uint64_t bytes)
{
    char text[300], gb[3][24];
    quantity_format_bytes(facts->free_bytes, gb[0]);
    quantity_format_bytes(facts->memory_bytes, gb[1]);
    quantity_format_bytes(bytes, gb[2]);
    snprintf(text, sizeof text, "%.100s has %s of %s free, %s are needed", facts->name, gb[0],
             gb[1], gb[2]);
    if (link->report)
        link->report(link->report_arg, text);
}

/* Some of the bytes are not free, and may be later. */
static bool is_short(const struct device_facts *facts, uint64_t bytes)
{
    return facts->free_bytes < bytes && bytes <= facts->memory_bytes;
}

/* Waits until `bytes` are free, or WAIT_NS. */
static void await_free(struct device_link *link, uint64_t bytes, struct device_facts *facts)
{
    uint64_t started = clock_ns();
    cuda_facts(link, facts);
    if (is_short(facts, bytes))
        report_wait(link, facts, bytes);
    while (is_short(facts, bytes) && clock_ns() - started < WAIT_NS) {
        nap();
        cuda_facts(link, facts);
    }
}

/* Waits until the free memory has not changed for SETTLED_NS, or WAIT_NS. */
static void await_settled(struct device_link *link, struct device_facts *facts)
{
    uint64_t started = clock_ns(), since = started;
    cuda_facts(link, facts);
    while (clock_ns() - since < SETTLED_NS && clock_ns() - started < WAIT_NS) {
        uint64_t before = facts->free_bytes;
        nap();
        cuda_facts(link, facts);
        if (facts->free_bytes != before)
            since = clock_ns();
    }
}

static void cuda_await(struct device_link *link, uint64_t bytes, struct device_facts *out)
{
    if (bytes)
        await_free(link, bytes, out);
    else
        await_settled(link, out);
}

enum error_code device_exclusive(const struct device_facts *facts, unsigned ordinal,
                                 struct error *e)
{
    return error_set(e, ERROR_UNSUPPORTED,
                     "device cuda:%u: %s is in %s, so one process can use it, and moed has two: "
                     "give --mps, or run nvidia-smi -i %u -c DEFAULT as root",
                     ordinal, facts->name, facts->mode, ordinal);
}

static enum error_code too_much(const struct device_facts *facts, uint64_t requested,
                                struct error *e)
{
    return error_set(e, ERROR_USAGE,
                     "%s has %.2f GB of memory, vram= requests %.2f GB: give a smaller vram=",
                     facts->name, (double)facts->memory_bytes * 1e-9, (double)requested * 1e-9);
}

static enum error_code cuda_hold(struct device_link *link, uint64_t bytes, void **out,
                                 struct error *e)
{
    struct cuda_link *l = (struct cuda_link *)link;
    return l->module->allocate(l->device, bytes, out, e);
}

static enum error_code cuda_allocate(struct device_link *link, uint64_t bytes,
                                     struct device_extent *p, struct error *e)
{
    struct cuda_link *l = (struct cuda_link *)link;
    void *memory = NULL;
    enum error_code code = cuda_hold(link, round_up(bytes, DEVICE_ALLOCATION_BYTES), &memory, e);
    if (code)
        return code;
    p->slots = memory;
    return l->module->export_memory(l->device, memory, &p->handle, e);
}

/* The calling thread has queued the writes to the extent. */
static void cuda_release(struct device_link *link, struct device_extent *p)
{
    struct cuda_link *l = (struct cuda_link *)link;
    struct error e;
    if (!p->slots || !l->device)
        return;
    if (l->module->finish(l->stream, &e) == ERROR_OK)
        l->module->release(l->device, p->slots);
}

static void cuda_let_go(struct device_link *link, void *held)
{
    struct cuda_link *l = (struct cuda_link *)link;
    l->module->release(l->device, held);
}

/* How many of the bytes lie in one part, as the memory is registered. */
static size_t bytes_in_part(const uint8_t *from, size_t bytes)
{
    size_t rest = PIN_BYTES - (uintptr_t)from % PIN_BYTES;
    return rest < bytes ? rest : bytes;
}

static uint64_t cuda_copying_ns(const struct device_link *link, size_t bytes)
{
    return (uint64_t)(((const struct cuda_link *)link)->ns_per_byte * (double)bytes);
}

static enum error_code cuda_queue(struct device_link *link, uint32_t at, struct error *e)
{
    (void)e; /* the event reports what fails */
    struct cuda_link *l = (struct cuda_link *)link;
    const struct link_copy *before = device_link_newest(link);
    struct link_copy *c = &link->queue[at];
    uint8_t *to = c->copy.to;
    const uint8_t *from = c->copy.from;
    for (size_t done = 0, n; done < c->copy.bytes; done += n) {
        n = bytes_in_part(from + done, c->copy.bytes - done);
        l->module->upload(l->stream, to + done, from + done, n);
    }
    for (uint32_t i = 0; i < c->copy.n_signals; i++)
        l->module->signal(l->stream, device_link_flag(link, c->copy.signals[i].slot),
                          c->copy.signals[i].value);
    l->module->event_record(l->events[at], l->stream);
    uint64_t begins = before && before->due_ns > c->queued_ns ? before->due_ns : c->queued_ns;
    c->due_ns = begins + cuda_copying_ns(link, c->copy.bytes);
    c->early_ns = EARLY_NS;
    return ERROR_OK;
}

/* Polls until the event is reached, or for `most` nanoseconds. */
static enum error_code poll_event(struct cuda_link *l, struct device_event *event, uint64_t most,
                                  bool *done, struct error *e)
{
    uint64_t started = clock_ns();
    enum error_code code;
    *done = false;
    do
        code = l->module->event_query(event, done, e);
    while (!code && !*done && clock_ns() - started < most);
    return code;
}

/* Takes the time of a copy whose end was seen. A thread that was interrupted counts as little late.
 */
static void estimate_rate(struct cuda_link *l, const struct link_copy *c)
{
    uint64_t last = l->base.done_ns, since = last > c->queued_ns ? last : c->queued_ns;
    double seen = (double)(clock_ns() - since) / (double)c->copy.bytes, most = 4 * l->ns_per_byte;
    l->ns_per_byte += ((seen < most ? seen : most) - l->ns_per_byte) / 8;
}

/* A copy had ended before the thread looked: the estimate may be too high, and it decides when the
 * thread looks. */
static void lower_estimate(struct cuda_link *l)
{
    double lower = l->ns_per_byte * 7 / 8;
    l->ns_per_byte = lower > LEAST_NS_PER_BYTE ? lower : LEAST_NS_PER_BYTE;
}

static enum error_code cuda_collect(struct device_link *link, uint32_t at, struct error *e)
{
    struct cuda_link *l = (struct cuda_link *)link;
    const struct link_copy *c = &link->queue[at];
    uint64_t now = clock_ns(), left = c->due_ns > now ? c->due_ns - now : 0;
    bool had_ended = false, done;
    enum error_code code = l->module->event_query(l->events[at], &had_ended, e);
    done = had_ended;
    if (!code && !done && left <= POLL_NS)
        code = poll_event(l, l->events[at], left + POLL_NS, &done, e);
    if (!code && !done)
        code = l->module->event_wait(l->events[at], e);
    if (code)
        return code;
    if (had_ended)
        lower_estimate(l);
    else if (c->copy.bytes)
        estimate_rate(l, c);
    return ERROR_OK;
}

static enum error_code cuda_clear(struct device_link *link, void *memory, size_t bytes,
                                  struct error *e)
{
    struct cuda_link *l = (struct cuda_link *)link;
    l->module->fill(l->stream, memory, 0, bytes);
    return l->module->finish(l->stream, e);
}

static void cuda_poison(struct device_link *link, void *memory, size_t bytes)
{
    struct cuda_link *l = (struct cuda_link *)link;
    if (l->poisons)
        l->module->fill(l->stream, memory, DEVICE_POISON, bytes);
}

static enum error_code cuda_pin(struct device_link *link, const void *memory, size_t bytes,
                                const _Atomic bool *stop, struct error *e)
{
    struct cuda_link *l = (struct cuda_link *)link;
    const uint8_t *at = memory;
    size_t refused = 0;
    struct error part;
    for (size_t done = 0, n; done < bytes && !atomic_load(stop); done += n) {
        n = bytes_in_part(at + done, bytes - done);
        if (!l->module->pin(l->device, at + done, n, &part))
            continue;
        if (!refused)
            *e = part;
        refused += n; /* a smaller part, or one of other memory, may still be pinned */
    }
    return refused ? error_prefix(e, "%.2f of %.2f GB are not pinned", (double)refused * 1e-9,
                                  (double)bytes * 1e-9)
                   : ERROR_OK;
}

static enum error_code open_device(struct cuda_link *l, const struct device_spec *s,
                                   struct error *e)
{
    struct device_facts facts;
    enum error_code code = device_module_load("cuda", &l->module, e);
    if (!code)
        code = l->module->open(s->ordinal, DEVICE_COPIES, &l->device, e);
    if (!code)
        code = l->module->stream_new(l->device, &l->stream, e);
    for (uint32_t i = 0; !code && i < DEVICE_LINK_QUEUE; i++)
        code = l->module->event_new(l->device, &l->events[i], e);
    if (code)
        return code;
    l->module->facts(l->device, &facts);
    log_info("device cuda:%u is %s, %.2f GB, %u multiprocessors, %s, %s", s->ordinal, facts.name,
             (double)facts.memory_bytes * 1e-9, facts.multiprocessors, facts.version, facts.mode);
    if (facts.exclusive)
        return device_exclusive(&facts, s->ordinal, e);
    if (s->vram_bytes > facts.memory_bytes) /* refused now, and not after the model is loaded */
        return too_much(&facts, s->vram_bytes, e);
    return ERROR_OK;
}

enum error_code device_link_cuda_new(const struct device_spec *s, struct device_link **out,
                                     struct error *e)
{
    static const struct device_link_kind kind = {
        .free = cuda_free,
        .module = cuda_module,
        .facts = cuda_facts,
        .await = cuda_await,
        .allocate = cuda_allocate,
        .release = cuda_release,
        .hold = cuda_hold,
        .let_go = cuda_let_go,
        .queue = cuda_queue,
        .copying_ns = cuda_copying_ns,
        .collect = cuda_collect,
        .clear = cuda_clear,
        .poison = cuda_poison,
        .pin = cuda_pin,
    };
    struct cuda_link *l = calloc(1, sizeof *l);
    if (!l)
        return error_set(e, ERROR_MEMORY, "no memory for the link of the device");
    l->base.kind = &kind;
    l->ns_per_byte = FIRST_NS_PER_BYTE;
    l->poisons = getenv("MOED_DEVICE_POISON") != NULL;
    enum error_code code = open_device(l, s, e);
    if (code) {
        cuda_free(&l->base);
        return code;
    }
    *out = &l->base;
    return ERROR_OK;
}
