/* Another process, as a worker is to memd; see bench.h. */
#include "bench/device/bench.h"

#include "base/clock.h"

#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* Opening a device takes a second or more: a context, all kernels. */
#define OPEN_NS 40000000000ull

/* In memory of both processes, before the caller's part. One writer a field. */
struct start {
    _Atomic uint32_t begin;  /* ours */
    _Atomic uint32_t opened; /* the other's */
};
#define START_BYTES 64
_Static_assert(sizeof(struct start) <= START_BYTES, "START_BYTES");

struct other_process {
    struct start *start;
    size_t bytes;
    pid_t pid; /* 0: it has ended */
};

static void *shared_of(struct other_process *o)
{
    return (uint8_t *)o->start + START_BYTES;
}

static _Noreturn void other_main(struct other_process *o, unsigned ordinal, pid_t parent,
                                 void (*work)(void *shared))
{
    struct error e;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) /* it ended before prctl */
        _exit(0);
    other_process_await_parent(&o->start->begin, 1);
    if (module->open(ordinal, DEVICE_COMPUTES, &device, &e))
        fail(&e);
    atomic_store(&o->start->opened, 1);
    work(shared_of(o));
    fflush(stdout);
    _exit(0);
}

struct other_process *other_process_new(unsigned ordinal, size_t shared_bytes,
                                        void (*work)(void *shared))
{
    struct other_process *o = calloc(1, sizeof *o);
    if (!o)
        exit(1);
    o->bytes = START_BYTES + shared_bytes;
    o->start = mmap(NULL, o->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (o->start == MAP_FAILED)
        exit(1);
    fflush(stdout);
    pid_t parent = getpid();
    o->pid = fork();
    if (o->pid < 0)
        exit(1);
    if (o->pid == 0)
        other_main(o, ordinal, parent, work);
    return o;
}

static bool has_ended(struct other_process *o)
{
    if (o->pid > 0 && waitpid(o->pid, NULL, WNOHANG) != 0)
        o->pid = 0;
    return o->pid == 0;
}

bool other_process_await(struct other_process *o, const _Atomic uint32_t *at, uint32_t value,
                         uint64_t limit_ns)
{
    for (uint64_t since = clock_ns(); atomic_load(at) < value; sched_yield()) {
        uint64_t waited = clock_ns() - since;
        if (waited > limit_ns || (waited > 1000000 && has_ended(o)))
            return atomic_load(at) >= value;
    }
    return true;
}

void other_process_await_parent(const _Atomic uint32_t *at, uint32_t value)
{
    while (atomic_load(at) < value)
        usleep(1000);
}

void *other_process_begin(struct other_process *o)
{
    atomic_store(&o->start->begin, 1);
    if (other_process_await(o, &o->start->opened, 1, OPEN_NS))
        return shared_of(o);
    printf("another process does not open the device within %d s, or has failed\n",
           (int)(OPEN_NS / 1000000000u));
    return NULL;
}

void other_process_free(struct other_process *o)
{
    if (!o)
        return;
    if (o->pid > 0) {
        kill(o->pid, SIGKILL);
        waitpid(o->pid, NULL, 0);
    }
    munmap(o->start, o->bytes);
    free(o);
}
