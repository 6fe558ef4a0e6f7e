/* Flags between two processes, as memd and a worker use them; see bench.h.
 *
 * This process writes flags, as memd does behind its copies. The other one queues a wait for a flag
 * and the smallest kernel behind it, and polls the kernel's end. First alone; then as while
 * serving: the other process computes on a second stream all the time, and a segment is copied
 * before each flag. Last the same between two streams of this process, which shows what crossing to
 * another process costs. A wait that does not end would stop this process. */
#include "bench/device/bench.h"

#include "base/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum {
    ROUNDS = 101,
    SEGMENT_BYTES = 880 << 10, /* of one expert of Qwen3-30B-A3B in Q4_K */
    WORK_FLOATS = 4 << 20,     /* of a kernel of `work`: some ten to hundred microseconds */
    MOST_KERNELS = 1000,       /* of them queued a round */
    MEMORY_BYTES = 2 << 20     /* of an allocation that a handle names */
};
#define WORK_NS   3000000ull     /* that they take together: a round is shorter */
#define ANSWER_NS 5000000000ull  /* a wait that takes this long does not end */
#define START_NS  20000000000ull /* the other process's first import and kernels */

/* In memory of both processes. One writer a field. */
struct shared {
    struct device_handle handle; /* ours, before `exported` */
    _Atomic uint32_t exported;   /* ours */
    _Atomic uint32_t armed;      /* the other's: its stream waits for this value */
    _Atomic uint32_t seen;       /* the other's: the kernel behind it has ended */
    _Atomic uint64_t seen_ns;    /* the other's, before `seen` */
};

static unsigned rounds(void)
{
    return simulated ? 3 : ROUNDS;
}

/* A stream that waits for a flag, and the kernel behind the wait. */
struct waiter {
    struct device_stream *stream;
    struct device_event *event;
    float *x;
};

static void waiter_init(struct waiter *w)
{
    struct error e;
    if (module->stream_new(device, &w->stream, &e) || module->event_new(device, &w->event, &e))
        fail(&e);
    w->x = allocate(2 * sizeof(float));
    module->ops.gate_by_sigmoid(w->stream, w->x + 1, w->x, 1);
    if (module->finish(w->stream, &e))
        fail(&e);
}

/* The kernels that the other process computes meanwhile. */
struct work {
    struct device_stream *stream;
    float *x; /* rows and their gates */
    size_t n;
    uint64_t kernels; /* that take WORK_NS */
};

static void work_queue(struct work *w)
{
    for (uint64_t i = 0; i < w->kernels; i++)
        module->ops.gate_by_sigmoid(w->stream, w->x + w->n, w->x, w->n);
}

/* Returns when all of it is done. */
static void work_finish(struct work *w)
{
    struct error e;
    if (module->finish(w->stream, &e))
        fail(&e);
}

static void work_init(struct work *w)
{
    struct error e;
    if (module->stream_new(device, &w->stream, &e))
        fail(&e);
    w->n = simulated ? 96 : WORK_FLOATS;
    w->x = allocate(2 * w->n * sizeof(float));
    w->kernels = simulated ? 1 : 10;
    work_queue(w);
    work_finish(w); /* the first may take longer */
    uint64_t since = clock_ns();
    work_queue(w);
    work_finish(w);
    uint64_t each_ns = (clock_ns() - since) / w->kernels + 1;
    if (!simulated)
        w->kernels = WORK_NS / each_ns < MOST_KERNELS ? WORK_NS / each_ns + 1 : MOST_KERNELS;
}

static void waiter_arm(struct waiter *w, const uint32_t *flag, uint32_t value)
{
    module->await(w->stream, flag, value);
    module->ops.gate_by_sigmoid(w->stream, w->x + 1, w->x, 1);
    module->event_record(w->event, w->stream);
}

/* Returns when the kernel behind the wait has ended; 0: it has not within ANSWER_NS. */
static uint64_t waiter_seen_ns(struct waiter *w)
{
    struct error e;
    uint64_t since = clock_ns();
    for (;;) {
        bool done;
        if (module->event_query(w->event, &done, &e))
            fail(&e);
        uint64_t now = clock_ns();
        if (done || now - since > ANSWER_NS)
            return done ? now : 0;
    }
}

/* ---- The other process ---- */

static void flags_work(void *shared)
{
    struct shared *s = shared;
    struct error e;
    struct waiter w;
    struct work work;
    void *flag;
    waiter_init(&w);
    work_init(&work);
    other_process_await_parent(&s->exported, 1);
    if (module->import_memory(device, &s->handle, &flag, &e))
        fail(&e);
    for (uint32_t i = 1; i <= 2 * rounds(); i++) {
        if (i > rounds())
            work_queue(&work);
        waiter_arm(&w, flag, i);
        atomic_store(&s->armed, i);
        uint64_t seen_ns = waiter_seen_ns(&w);
        if (!seen_ns)
            return; /* the stream still waits */
        atomic_store(&s->seen_ns, seen_ns);
        atomic_store(&s->seen, i);
        if (i > rounds())
            work_finish(&work);
    }
    module->close_imported(device, flag);
}

struct other_process *flags_process_new(unsigned ordinal)
{
    return other_process_new(ordinal, sizeof(struct shared), flags_work);
}

/* ---- This process ---- */

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* A segment in pinned memory, and where it goes. */
struct segment {
    void *from, *to;
};

/* The flag's write, behind the copy of a segment or of nothing (NULL), once the wait for it has
 * settled on the device; returns the time before it. */
static uint64_t write_flag(uint32_t *flag, uint32_t value, const struct segment *segment)
{
    nanosleep(&(struct timespec){.tv_nsec = 300000}, NULL);
    uint64_t now = clock_ns();
    if (segment)
        module->upload(stream, segment->to, segment->from, SEGMENT_BYTES);
    module->signal(stream, flag, value);
    return now;
}

static double median(double *times)
{
    qsort(times, rounds(), sizeof *times, by_size);
    return times[rounds() / 2];
}

/* Between two streams of this process; 0: the stream that waits does not end. */
static double flag_within(uint32_t *flag)
{
    struct waiter w;
    double times[ROUNDS];
    waiter_init(&w);
    for (uint32_t i = 1; i <= rounds(); i++) {
        waiter_arm(&w, flag, i);
        uint64_t written = write_flag(flag, i, NULL), seen = waiter_seen_ns(&w);
        if (!seen)
            return 0;
        times[i - 1] = (double)(seen - written) * 1e-9;
    }
    module->stream_free(w.stream);
    module->event_free(w.event);
    module->release(device, w.x);
    return median(times);
}

/* To the other process; 0: it does not answer. worst: the largest of all rounds. segment: NULL: in
 * the first rounds, in which the other process does not compute. */
static double flag_to_other(struct other_process *o, struct shared *s, uint32_t *flag,
                            const struct segment *segment, double *worst)
{
    double times[ROUNDS];
    for (uint32_t i = 1; i <= rounds(); i++) {
        uint32_t value = segment ? rounds() + i : i;
        if (!other_process_await(o, &s->armed, value, START_NS))
            return 0;
        uint64_t written = write_flag(flag, value, segment);
        if (!other_process_await(o, &s->seen, value, ANSWER_NS))
            return 0;
        times[i - 1] = (double)(atomic_load(&s->seen_ns) - written) * 1e-9;
    }
    double middle = median(times);
    *worst = times[rounds() - 1];
    return middle;
}

/* While the other process computes, and behind the copy of a segment. */
static void bench_busy_flags(struct other_process *o, struct shared *s, uint32_t *flag, double idle)
{
    struct error e;
    double worst;
    struct segment segment = {.from = calloc(1, SEGMENT_BYTES), .to = allocate(SEGMENT_BYTES)};
    if (!segment.from)
        exit(1);
    if (module->pin(device, segment.from, SEGMENT_BYTES, &e))
        printf("the segment is not pinned: %s\n", e.text);
    double busy = flag_to_other(o, s, flag, &segment, &worst);
    if (busy) {
        print_time("in another that computes, behind a copy", busy, idle);
        print_time("the same, the slowest of 101", worst, idle);
        if (!simulated)
            printf("figure: a flag to another process that computes %.1f us, slowest %.1f\n",
                   busy * 1e6, worst * 1e6);
    } else {
        printf("another process that computes does not see a flag within 5 s, or has failed\n");
    }
    module->unpin(device, segment.from);
    module->release(device, segment.to);
    free(segment.from);
}

static void bench_other(struct other_process *o, uint32_t *flag)
{
    struct error e;
    struct shared *s = other_process_begin(o);
    double worst;
    if (!s)
        return;
    if (module->export_memory(device, flag, &s->handle, &e))
        fail(&e);
    atomic_store(&s->exported, 1);
    double to_other = flag_to_other(o, s, flag, NULL, &worst);
    if (!to_other) {
        printf("another process does not see a flag within 5 s, or has failed\n");
        return;
    }
    print_time("in another process", to_other, bounds.kernel_s);
    print_time("in another process, the slowest of 101", worst, bounds.kernel_s);
    if (!simulated)
        printf("figure: a flag to another process %.1f us, slowest %.1f\n", to_other * 1e6,
               worst * 1e6);
    bench_busy_flags(o, s, flag, to_other);
}

void bench_flags(struct other_process *o)
{
    struct device_facts facts;
    print_heading("from a flag's write to the end of a kernel");
    module->facts(device, &facts);
    if (!facts.signals) {
        printf("the driver has no flags\n");
        return;
    }
    uint32_t *flag = allocate_filled(MEMORY_BYTES, 0), *own = allocate_filled(sizeof *own, 0);
    finish();
    bench_other(o, flag);
    double within = flag_within(own);
    if (!within) {
        printf("a stream of this process does not see a flag within 5 s\n");
        fflush(stdout);
        _exit(1); /* any other call may wait for that stream */
    }
    print_time("in one process", within, bounds.kernel_s);
    module->release(device, own);
    module->release(device, flag);
}
