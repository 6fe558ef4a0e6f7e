/* The execution model: blocks run one after the other. The threads of a block are fibers, which
 * switch only where they wait for each other, at barriers and warp operations.
 *
 * A thread is UNSTARTED, READY (queued or running), AT_BARRIER, AT_WARP_OP or ENDED. A fiber that
 * ends a thread starts the next thread itself, so that a kernel without barriers is one loop on one
 * stack. If no thread can run and some wait, the barrier is divergent. */
#include "block.h"

#include "copies.h"
#include "fiber.h"
#include "matrix.h"
#include "races.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

struct cusim_here cusim_here;

namespace
{
enum { MAX_THREADS = 1024, WARP = 32 };
enum state { UNSTARTED, READY, AT_BARRIER, AT_WARP_OP, ENDED };

struct thread {
    enum state state;
    struct fiber *fiber;
    uint3 index;
    bool awaited; /* called cusim_await_previous */
    enum cusim_barrier barrier;
    enum cusim_warp_op op;
    int predicate;
    unsigned mask, source;
    uint64_t value, result;
};

struct block_run {
    const struct cusim_kernel *kernel; /* NULL: none runs */
    unsigned n_threads, n_unstarted_from, n_ended, n_at_barrier, n_true;
    unsigned now; /* the running thread */
    unsigned n_queued, queue_head;
    cudaError_t error;
    struct thread threads[MAX_THREADS];
    uint16_t queue[MAX_THREADS];
    size_t shared_bytes;
    unsigned at_warp_op[MAX_THREADS / WARP]; /* lanes */
};

struct block_run run;
thread_local struct fiber main_fiber; /* of the thread that runs the kernel */
thread_local bool main_fiber_known;
struct fiber fibers[MAX_THREADS];
unsigned n_fibers; /* that have a stack */
struct fiber *idle[MAX_THREADS];
unsigned n_idle;

const char *const barrier_names[] = {"__syncthreads", "__syncthreads_count", "__syncthreads_and",
                                     "__syncthreads_or"};
const char *const op_names[] = {"__syncwarp",
                                "__shfl_sync",
                                "a vote",
                                "__match_any_sync",
                                "__reduce_add_sync",
                                "__reduce_min_sync",
                                "__reduce_max_sync",
                                "__reduce_min_sync",
                                "__reduce_max_sync",
                                "__reduce_and_sync",
                                "__reduce_or_sync",
                                "__reduce_xor_sync",
                                "ldmatrix",
                                "mma"};

/* ---- messages ---- */

bool same_situation(const struct thread &a, const struct thread &b)
{
    return a.state == b.state && (a.state != AT_BARRIER || a.barrier == b.barrier) &&
           (a.state != AT_WARP_OP || (a.op == b.op && a.mask == b.mask));
}

void print_situation(const struct thread &t)
{
    if (t.state == AT_BARRIER)
        fprintf(stderr, "wait at %s\n", barrier_names[t.barrier]);
    else if (t.state == AT_WARP_OP)
        fprintf(stderr, "wait at %s of mask 0x%08x\n", op_names[t.op], t.mask);
    else
        fprintf(stderr, "%s\n",
                t.state == ENDED   ? "have ended"
                : t.state == READY ? "can run"
                                   : "have not started");
}

} // namespace

void block_die(const char *format, ...)
{
    char where[256];
    va_list list;
    block_describe(where, sizeof where);
    fprintf(stderr, "cusim: ");
    va_start(list, format);
    vfprintf(stderr, format, list);
    va_end(list);
    fprintf(stderr, " in %s\n", where);
    for (unsigned first = 0, end; first < run.n_threads; first = end) {
        for (end = first + 1;
             end < run.n_threads && same_situation(run.threads[first], run.threads[end]);)
            end++;
        fprintf(stderr, "cusim:   threads %u to %u ", first, end - 1);
        print_situation(run.threads[first]);
    }
    abort();
}

namespace
{
/* ---- the running thread ---- */

void make_here(unsigned t)
{
    run.now = t;
    cusim_here.thread = run.threads[t].index;
    cusim_here.lane = t % WARP;
}

void make_ready(unsigned t)
{
    run.threads[t].state = READY;
    run.queue[(run.queue_head + run.n_queued++) % MAX_THREADS] = (uint16_t)t;
}

void fiber_main();

struct fiber *idle_fiber()
{
    if (n_idle == 0) {
        fiber_init(&fibers[n_fibers], n_fibers, fiber_main);
        idle[n_idle++] = &fibers[n_fibers++];
    }
    return idle[--n_idle];
}

/* The running fiber yields: to a thread that is ready, to one that has not started, or to the end
 * of the block. */
void give_way(struct fiber *from)
{
    struct fiber *to = &main_fiber;
    if (run.n_queued > 0) {
        unsigned t = run.queue[run.queue_head];
        run.queue_head = (run.queue_head + 1) % MAX_THREADS;
        run.n_queued--;
        make_here(t);
        to = run.threads[t].fiber;
    } else if (run.n_unstarted_from < run.n_threads) {
        to = idle_fiber();
    } else if (run.n_ended < run.n_threads) {
        block_die("divergent barrier: threads wait for others that do not come,");
    }
    fiber_switch(from, to);
}

void run_threads(struct fiber *self)
{
    while (run.n_unstarted_from < run.n_threads) {
        unsigned t = run.n_unstarted_from++;
        struct thread *thread = &run.threads[t];
        thread->state = READY;
        thread->fiber = self;
        thread->awaited = false;
        make_here(t);
        run.kernel->invoke(run.kernel->call);
        if (copies_pending(t))
            block_die("a thread ends before it has waited for its cp.async");
        if (run.kernel->dependent && !thread->awaited)
            block_die("a thread ends that has not waited for the kernel before");
        thread->state = ENDED;
        run.n_ended++;
    }
}

/* A fiber runs threads. When there are none to start, it is idle until another fiber switches to
 * it. */
void fiber_main()
{
    fiber_entered();
    for (;;) {
        /* The current fiber is the one that was last removed from the idle list. */
        struct fiber *self = idle[n_idle];
        run_threads(self);
        idle[n_idle++] = self;
        give_way(self);
    }
}

/* The running thread waits until another thread makes it ready. */
void wait_here()
{
    unsigned t = run.now;
    give_way(run.threads[t].fiber);
}

/* ---- warp operations ---- */

uint64_t reduce(enum cusim_warp_op op, uint64_t a64, uint64_t b64)
{
    uint32_t a = (uint32_t)a64, b = (uint32_t)b64;
    switch (op) {
    case CUSIM_REDUCE_ADD:
        return a + b;
    case CUSIM_REDUCE_MIN_SIGNED:
        return (int32_t)a < (int32_t)b ? a : b;
    case CUSIM_REDUCE_MAX_SIGNED:
        return (int32_t)a < (int32_t)b ? b : a;
    case CUSIM_REDUCE_MIN_UNSIGNED:
        return a < b ? a : b;
    case CUSIM_REDUCE_MAX_UNSIGNED:
        return a < b ? b : a;
    case CUSIM_REDUCE_AND:
        return a & b;
    case CUSIM_REDUCE_OR:
        return a | b;
    default:
        return a ^ b;
    }
}

uint64_t ballot_of(const struct thread *lanes, unsigned mask)
{
    uint64_t ballot = 0;
    for (unsigned left = mask; left != 0; left &= left - 1) {
        unsigned lane = (unsigned)__builtin_ctz(left);
        ballot |= (uint64_t)(lanes[lane].value & 1) << lane;
    }
    return ballot;
}

uint64_t reduction_of(const struct thread *lanes, unsigned mask, enum cusim_warp_op op)
{
    uint64_t sum = lanes[__builtin_ctz(mask)].value;
    for (unsigned left = mask & (mask - 1); left != 0; left &= left - 1)
        sum = reduce(op, sum, lanes[__builtin_ctz(left)].value);
    return sum;
}

uint64_t lanes_equal_to(const struct thread *lanes, unsigned mask, uint64_t value)
{
    uint64_t equal = 0;
    for (unsigned left = mask; left != 0; left &= left - 1) {
        unsigned lane = (unsigned)__builtin_ctz(left);
        equal |= (uint64_t)(lanes[lane].value == value) << lane;
    }
    return equal;
}

void compute_matrices(const struct thread *lanes, enum cusim_warp_op op)
{
    uint64_t values[MATRIX_LANES];
    for (unsigned lane = 0; lane < MATRIX_LANES; lane++)
        values[lane] = lanes[lane].value;
    const char *wrong = matrix_compute(op, values);
    if (wrong != nullptr)
        block_die("%s", wrong);
}

/* All lanes of mask have arrived: computes the result of each. */
void compute_warp_op(struct thread *lanes, unsigned mask, enum cusim_warp_op op)
{
    uint64_t common = 0;
    if (op >= CUSIM_LOAD_MATRICES) {
        compute_matrices(lanes, op);
        return;
    }
    if (op == CUSIM_SYNCWARP)
        races_warp_barrier((unsigned)(lanes - run.threads) / WARP, mask);
    if (op == CUSIM_BALLOT)
        common = ballot_of(lanes, mask);
    else if (op >= CUSIM_REDUCE_ADD)
        common = reduction_of(lanes, mask, op);
    for (unsigned left = mask; left != 0; left &= left - 1) {
        struct thread *lane = &lanes[__builtin_ctz(left)];
        if (op == CUSIM_SHFL) {
            if (lane->source >= WARP || !(mask >> lane->source & 1))
                block_die("a shuffle of mask 0x%08x reads lane %u, which takes no part,", mask,
                          lane->source);
            lane->result = lanes[lane->source].value;
        } else {
            lane->result =
                op == CUSIM_MATCH_ANY ? lanes_equal_to(lanes, mask, lane->value) : common;
        }
    }
}

/* ---- blocks ---- */

void begin_kernel(const struct cusim_kernel *kernel, dim3 grid, dim3 block)
{
    run.kernel = kernel;
    run.error = cudaSuccess;
    run.n_threads = block.x * block.y * block.z;
    cusim_here.grid_dim = grid;
    cusim_here.block_dim = block;
    for (unsigned t = 0; t < run.n_threads; t++)
        run.threads[t].index = {t % block.x, t / block.x % block.y, t / block.x / block.y};
}

void begin_block(size_t shared_bytes)
{
    run.n_unstarted_from = run.n_ended = run.n_at_barrier = run.n_true = 0;
    run.n_queued = run.queue_head = 0;
    for (unsigned t = 0; t < run.n_threads; t++)
        run.threads[t].state = UNSTARTED;
    memset(run.at_warp_op, 0, sizeof run.at_warp_op);
    run.shared_bytes = shared_bytes;
    copies_begin_block(run.n_threads);
    races_begin_block(cusim_here.shared, shared_bytes);
    if (shared_bytes != 0)
        memset(cusim_here.shared, 0xff, shared_bytes);
}

/* After a trap the other threads stop where they are. */
void abandon_fibers()
{
    n_idle = 0;
    for (unsigned i = 0; i < n_fibers; i++) {
#if defined(__SANITIZE_ADDRESS__)
        __asan_unpoison_memory_region(fibers[i].stack, fibers[i].stack_bytes);
#endif
        fiber_restart(&fibers[i], fiber_main);
        idle[n_idle++] = &fibers[i];
    }
}

uint64_t gcd(uint64_t a, uint64_t b)
{
    while (b != 0) {
        uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* A step through [0, n) that visits every number, from any start: 1, -1 or any step without a
 * common divisor. */
uint64_t stride_of(uint64_t n, unsigned long order)
{
    if (order % 4 == 0)
        return 1;
    if (order % 4 == 1)
        return n - 1;
    uint64_t stride = order / 4 % n | 1;
    while (gcd(stride, n) != 1)
        stride += 2;
    return stride;
}
} // namespace

cudaError_t block_run_grid(const struct cusim_kernel *kernel, dim3 grid, dim3 block,
                           size_t shared_bytes, unsigned long order)
{
    uint64_t n_blocks = (uint64_t)grid.x * grid.y * grid.z;
    if (!main_fiber_known)
        fiber_init_thread(&main_fiber);
    main_fiber_known = true;
    begin_kernel(kernel, grid, block);
    cusim_here.shared = nullptr;
    if (shared_bytes != 0 && posix_memalign(&cusim_here.shared, 16, shared_bytes) != 0)
        block_die("no memory for the shared memory");
    uint64_t stride = stride_of(n_blocks, order), b = order / 4 % n_blocks;
    for (uint64_t i = 0; i < n_blocks && run.error == cudaSuccess; i++) {
        cusim_here.block = {(unsigned)(b % grid.x), (unsigned)(b / grid.x % grid.y),
                            (unsigned)(b / grid.x / grid.y)};
        begin_block(shared_bytes);
        fiber_switch(&main_fiber, idle_fiber());
        b = (b + stride) % n_blocks;
    }
    if (run.error != cudaSuccess)
        abandon_fibers();
    races_begin_block(nullptr, 0);
    free(cusim_here.shared);
    run.kernel = nullptr;
    return run.error;
}

unsigned block_thread()
{
    return run.now;
}

bool block_is_shared(const void *p, size_t bytes)
{
    uintptr_t first = (uintptr_t)cusim_here.shared, at = (uintptr_t)p;
    return at >= first && at - first <= run.shared_bytes &&
           run.shared_bytes - (at - first) >= bytes;
}

bool block_describe(char *text, size_t bytes)
{
    if (run.kernel == nullptr)
        return false;
    snprintf(text, bytes, "kernel %s, block (%u,%u,%u) of (%u,%u,%u), thread %u of %u",
             run.kernel->name, cusim_here.block.x, cusim_here.block.y, cusim_here.block.z,
             cusim_here.grid_dim.x, cusim_here.grid_dim.y, cusim_here.grid_dim.z, run.now,
             run.n_threads);
    return true;
}

/* A thread ends or waits elsewhere while others wait. give_way finds this when no thread can run
 * any more. */
unsigned cusim_block_barrier(enum cusim_barrier kind, int predicate)
{
    struct thread *self = &run.threads[run.now];
    self->state = AT_BARRIER;
    self->barrier = kind;
    run.n_true += predicate != 0;
    if (++run.n_at_barrier < run.n_threads) {
        wait_here();
        return (unsigned)self->result;
    }
    unsigned n_true = run.n_true;
    races_block_barrier();
    run.n_at_barrier = run.n_true = 0;
    for (unsigned t = 0; t < run.n_threads; t++)
        if (run.threads[t].barrier != kind)
            block_die("divergent barrier: threads wait at %s and at %s,", barrier_names[kind],
                      barrier_names[run.threads[t].barrier]);
    for (unsigned t = 0; t < run.n_threads; t++) {
        run.threads[t].result = n_true;
        if (t != run.now)
            make_ready(t);
    }
    self->state = READY;
    return n_true;
}

uint64_t cusim_warp(enum cusim_warp_op op, unsigned mask, uint64_t value, unsigned source)
{
    unsigned warp = run.now / WARP, lane = run.now % WARP;
    struct thread *lanes = &run.threads[warp * WARP], *self = &lanes[lane];
    unsigned *waiting = &run.at_warp_op[warp];
    self->state = AT_WARP_OP;
    self->op = op;
    self->mask = mask;
    self->value = value;
    self->source = source;
    if (!(mask >> lane & 1))
        block_die("%s of mask 0x%08x by lane %u, which is not in it,", op_names[op], mask, lane);
    *waiting |= 1u << lane;
    if ((*waiting & mask) != mask) {
        wait_here();
        return self->result;
    }
    for (unsigned left = mask; left != 0; left &= left - 1) {
        const struct thread *other = &lanes[__builtin_ctz(left)];
        if (other->mask != mask || other->op != op)
            block_die("divergent warp: lanes %u and %u wait at different operations,", lane,
                      (unsigned)__builtin_ctz(left));
    }
    compute_warp_op(lanes, mask, op);
    *waiting &= ~mask;
    for (unsigned left = mask & ~(1u << lane); left != 0; left &= left - 1)
        make_ready(warp * WARP + (unsigned)__builtin_ctz(left));
    self->state = READY;
    return self->result;
}

void cusim_await_previous()
{
    run.threads[run.now].awaited = true;
}

void cusim_trap(int error)
{
    run.error = (cudaError_t)error;
    fiber_switch(run.threads[run.now].fiber, &main_fiber);
    abort(); /* an abandoned fiber is never switched to */
}
