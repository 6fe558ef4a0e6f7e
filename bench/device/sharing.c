/* What two processes share of a device, as memd and a worker do: the arena by its handle, and
 * flags; see bench.h.
 *
 * This process writes flags, as memd does behind its copies. The other one queues a wait for a flag
 * and the smallest kernel behind it, and polls the kernel's end. The bound is the same between two
 * streams of one process. Then the same as while serving: the other process computes on a second
 * stream all the time, and a segment is copied before each flag. */
#include "bench/device/bench.h"

#include "base/clock.h"

#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    ROUNDS = 101,
    SEGMENT_BYTES = 880 << 10, /* of one expert of Qwen3-30B-A3B in Q4_K */
    WORK_FLOATS = 4 << 20,     /* of a kernel beside the flags: some ten to hundred microseconds */
    MOST_KERNELS = 1000        /* of them queued a round */
};
#define WORK_NS   3000000ull    /* that they take together: a round is shorter */
#define ANSWER_NS 5000000000ull /* without an answer for this long the other process hangs */

/* In memory of both. One writer a field. */
struct shared {
    struct device_handle handle; /* ours, before `exported` */
    _Atomic uint32_t exported;   /* ours */
    _Atomic uint32_t imported;   /* the other's; in microseconds, at least 1 */
    _Atomic uint32_t armed;      /* the other's: its stream waits for this value */
    _Atomic uint32_t seen;       /* the other's: the kernel behind it has ended */
    _Atomic uint64_t seen_ns;    /* the other's, before `seen` */
};

struct other_process {
    struct shared *shared;
    pid_t pid;
};

static unsigned rounds(void)
{
    return simulated ? 3 : ROUNDS;
}

/* False: not within ANSWER_NS. */
static bool await_value(const _Atomic uint32_t *at, uint32_t value)
{
    for (uint64_t since = clock_ns(); atomic_load(at) < value; sched_yield())
        if (clock_ns() - since > ANSWER_NS)
            return false;
    return true;
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

/* The kernels beside the flags. */
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

/* Returns when the kernel behind the wait has ended. */
static uint64_t waiter_seen_ns(struct waiter *w)
{
    struct error e;
    for (bool done = false; !done;)
        if (module->event_query(w->event, &done, &e))
            fail(&e);
    return clock_ns();
}

/* ---- The other process ---- */

static _Noreturn void other_main(struct shared *s, unsigned ordinal)
{
    struct error e;
    struct waiter w;
    struct work work;
    struct device_facts facts;
    void *arena;
    while (!atomic_load(&s->exported))
        usleep(1000);
    if (module->open(ordinal, &device, &e))
        fail(&e);
    uint64_t since = clock_ns();
    if (module->import_memory(device, &s->handle, &arena, &e))
        fail(&e);
    atomic_store(&s->imported, (uint32_t)((clock_ns() - since) / 1000 + 1));
    module->facts(device, &facts);
    waiter_init(&w);
    work_init(&work);
    for (uint32_t i = 1; facts.signals && i <= 2 * rounds(); i++) {
        if (i > rounds())
            work_queue(&work);
        waiter_arm(&w, arena, i);
        atomic_store(&s->armed, i);
        atomic_store(&s->seen_ns, waiter_seen_ns(&w));
        atomic_store(&s->seen, i);
        if (i > rounds())
            work_finish(&work);
    }
    module->close_imported(device, arena);
    _exit(0);
}

struct other_process *other_process_new(unsigned ordinal)
{
    struct other_process *o = calloc(1, sizeof *o);
    void *memory =
        mmap(NULL, sizeof *o->shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (!o || memory == MAP_FAILED)
        exit(1);
    o->shared = memory;
    fflush(stdout);
    pid_t self = getpid();
    o->pid = fork();
    if (o->pid == 0) {
        while (!atomic_load(&o->shared->exported)) { /* ends with us */
            if (getppid() != self)
                _exit(0);
            usleep(1000);
        }
        other_main(o->shared, ordinal);
    }
    return o;
}

void other_process_free(struct other_process *o)
{
    if (!o)
        return;
    if (o->pid > 0) {
        kill(o->pid, SIGKILL);
        waitpid(o->pid, NULL, 0);
    }
    munmap(o->shared, sizeof *o->shared);
    free(o);
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

/* Between two streams of this process. */
static double flag_within(uint32_t *flag)
{
    struct waiter w;
    double times[ROUNDS];
    waiter_init(&w);
    for (uint32_t i = 1; i <= rounds(); i++) {
        waiter_arm(&w, flag, i);
        uint64_t written = write_flag(flag, i, NULL);
        times[i - 1] = (double)(waiter_seen_ns(&w) - written) * 1e-9;
    }
    module->stream_free(w.stream);
    module->event_free(w.event);
    module->release(device, w.x);
    qsort(times, rounds(), sizeof *times, by_size);
    return times[rounds() / 2];
}

/* To the other process; 0: it does not answer. worst: the largest of all rounds. segment: NULL: in
 * the first rounds, without work beside them. */
static double flag_to_other(struct shared *s, uint32_t *flag, const struct segment *segment,
                            double *worst)
{
    double times[ROUNDS];
    for (uint32_t i = 1; i <= rounds(); i++) {
        uint32_t value = segment ? rounds() + i : i;
        if (!await_value(&s->armed, value))
            return 0;
        uint64_t written = write_flag(flag, value, segment);
        if (!await_value(&s->seen, value))
            return 0;
        times[i - 1] = (double)(atomic_load(&s->seen_ns) - written) * 1e-9;
    }
    qsort(times, rounds(), sizeof *times, by_size);
    *worst = times[rounds() - 1];
    return times[rounds() / 2];
}

/* While the other process computes, and behind the copy of a segment. */
static void bench_busy_flags(struct other_process *o, uint32_t *flag, double idle)
{
    struct error e;
    double worst;
    struct segment segment = {.from = calloc(1, SEGMENT_BYTES), .to = allocate(SEGMENT_BYTES)};
    if (!segment.from)
        exit(1);
    if (module->pin(device, segment.from, SEGMENT_BYTES, &e))
        printf("the segment is not pinned: %s\n", e.text);
    double busy = flag_to_other(o->shared, flag, &segment, &worst);
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

static void bench_flags(struct other_process *o, uint32_t *flag, uint32_t *own)
{
    double within = flag_within(own), worst;
    double to_other = flag_to_other(o->shared, flag, NULL, &worst);
    print_time("in one process", within, bounds.kernel_s);
    if (!to_other) {
        printf("another process does not see a flag within 5 s, or has failed\n");
        return;
    }
    print_time("in another process", to_other, within);
    print_time("in another process, the slowest of 101", worst, within);
    if (!simulated)
        printf("figure: a flag to another process %.1f us, slowest %.1f\n", to_other * 1e6,
               worst * 1e6);
    bench_busy_flags(o, flag, to_other);
}

void bench_sharing(struct other_process *o, bool only_flags)
{
    struct error e;
    struct device_facts facts;
    module->facts(device, &facts);
    size_t bytes = simulated || only_flags ? 2u << 20 : facts.free_bytes / 2 >> 21 << 21;
    uint32_t *arena = allocate_filled(bytes < 2u << 20 ? 2u << 20 : bytes, 0),
             *own = allocate_filled(sizeof *own, 0);
    finish();
    print_heading("sharing memory with another process");
    uint64_t since = clock_ns();
    if (module->export_memory(device, arena, &o->shared->handle, &e))
        fail(&e);
    double exported = (double)(clock_ns() - since) * 1e-9;
    char what[64];
    snprintf(what, sizeof what, "exporting %.1f GB", (double)bytes * 1e-9);
    print_time(what, exported, 0);
    atomic_store(&o->shared->exported, 1);
    bool answers = await_value(&o->shared->imported, 1);
    double imported = atomic_load(&o->shared->imported) * 1e-6;
    if (!answers) {
        printf("another process does not import it within 5 s, or has failed\n");
    } else {
        print_time("importing it", imported, 0);
        if (!simulated)
            printf("figure: importing %.2f ms\n", imported * 1e3);
    }
    print_heading("from a flag's write to the end of a kernel");
    if (!facts.signals)
        printf("the driver has no flags\n");
    else if (answers)
        bench_flags(o, arena, own);
    module->release(device, own);
    module->release(device, arena);
}
