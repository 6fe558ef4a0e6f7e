/* Races, found access by access. Kernels are compiled with -fsanitize=thread, for the calls that it
 * inserts before every access, but not linked with ThreadSanitizer: the calls end here.
 *
 * 1. Every access has a time: the number of block barriers before it (epoch), and the number of
 * warp barriers of its own thread (clock).
 * 2. seen[a][b] is the latest clock of lane b that lane a knows of, by warp barriers of both. So an
 *    earlier access of b is ordered before a's if its epoch is older, or its clock is not above
 *    seen[a][b].
 * 3. Epochs and clocks never go back, so what an earlier block left is older than everything.
 * 4. A word keeps its last write and two reads of different threads: with more readers a race may
 *    remain unseen, but what is reported is one. */
#include "races.h"

#include "block.h"

#ifndef CUSIM_NO_RACES
namespace
{
enum { MAX_THREADS = 1024, WARP = 32, MAX_WORDS = (100 << 10) / 4 };

struct access {
    uint32_t epoch; /* 0: none */
    uint32_t clock;
    uint16_t thread;
    uint8_t bytes; /* of the word, a bit each */
};

struct word {
    struct access write, reads[2];
};

struct word words[MAX_WORDS];
uint32_t seen[MAX_THREADS][WARP];
uint32_t clocks[MAX_THREADS]; /* the thread's own, less 1 */
uint32_t epoch = 1;
uintptr_t shared_first;
size_t shared_bytes;

inline bool is_ordered(const struct access &before, unsigned thread)
{
    return before.thread == thread || (before.thread / WARP == thread / WARP &&
                                       before.clock <= seen[thread][before.thread % WARP]);
}

inline void check(const struct access &before, unsigned thread, uint8_t bytes, size_t word,
                  bool wrote, bool writes)
{
    if (before.epoch < epoch || !(before.bytes & bytes) || is_ordered(before, thread))
        return;
    block_die("race: thread %u %s and thread %u %s bytes %zu to %zu of the shared memory without a "
              "barrier between,",
              before.thread, wrote ? "writes" : "reads", thread, writes ? "writes" : "reads",
              word * 4, word * 4 + 3);
}

/* The access to `bytes` of a word. */
inline void touch(unsigned thread, size_t at, uint8_t bytes, bool writes)
{
    struct word &w = words[at];
    struct access now = {epoch, clocks[thread] + 1, (uint16_t)thread, bytes};
    check(w.write, thread, bytes, at, true, writes);
    if (writes) {
        check(w.reads[0], thread, bytes, at, false, true);
        check(w.reads[1], thread, bytes, at, false, true);
        w.write = now;
        return;
    }
    unsigned place = w.reads[0].epoch == epoch && w.reads[0].thread != thread;
    if (w.reads[place].epoch == epoch && w.reads[place].thread == thread &&
        w.reads[place].clock == now.clock)
        now.bytes |= w.reads[place].bytes;
    w.reads[place] = now;
}

void access_bytes(unsigned thread, const void *p, size_t bytes, bool writes)
{
    uintptr_t first = (uintptr_t)p - shared_first;
    if (first >= shared_bytes)
        return;
    uintptr_t end = first + bytes < shared_bytes ? first + bytes : shared_bytes;
    uintptr_t at = first;
    for (; at % 4 == 0 && end - at >= 4; at += 4) /* whole words, as most are */
        touch(thread, at / 4, 15, writes);
    while (at < end) {
        uintptr_t next = (at | 3) + 1 < end ? (at | 3) + 1 : end;
        touch(thread, at / 4, (uint8_t)((1u << (next - at)) - 1) << at % 4, writes);
        at = next;
    }
}
} // namespace

void races_begin_block(const void *shared, size_t bytes)
{
    shared_first = (uintptr_t)shared;
    shared_bytes = bytes;
    epoch++;
}

void races_block_barrier()
{
    epoch++;
}

void races_warp_barrier(unsigned warp, unsigned mask)
{
    uint32_t all[WARP] = {};
    for (unsigned left = mask; left != 0; left &= left - 1) {
        unsigned thread = warp * WARP + (unsigned)__builtin_ctz(left);
        seen[thread][thread % WARP] = ++clocks[thread];
        for (unsigned i = 0; i < WARP; i++)
            all[i] = seen[thread][i] > all[i] ? seen[thread][i] : all[i];
    }
    for (unsigned left = mask; left != 0; left &= left - 1)
        memcpy(seen[warp * WARP + (unsigned)__builtin_ctz(left)], all, sizeof all);
}

void races_read(unsigned thread, const void *p, size_t bytes)
{
    access_bytes(thread, p, bytes, false);
}

void races_write(unsigned thread, const void *p, size_t bytes)
{
    access_bytes(thread, p, bytes, true);
}
#endif

#ifdef CUSIM_RACES
/* The compiler's calls. Kernels run on one thread; other threads of the host access other memory.
 * An atomic operation is checked as neither read nor write. */
namespace
{
inline void of_kernel(const void *p, size_t bytes, bool writes)
{
    if ((uintptr_t)p - shared_first < shared_bytes)
        access_bytes(block_thread(), p, bytes, writes);
}
} // namespace

extern "C" {
#define EXPORT __attribute__((visibility("default")))
#define ACCESSES(n)                                                                                \
    EXPORT void __tsan_read##n(void *p)                                                            \
    {                                                                                              \
        of_kernel(p, n, false);                                                                    \
    }                                                                                              \
    EXPORT void __tsan_write##n(void *p)                                                           \
    {                                                                                              \
        of_kernel(p, n, true);                                                                     \
    }                                                                                              \
    EXPORT void __tsan_unaligned_read##n(void *p)                                                  \
    {                                                                                              \
        of_kernel(p, n, false);                                                                    \
    }                                                                                              \
    EXPORT void __tsan_unaligned_write##n(void *p)                                                 \
    {                                                                                              \
        of_kernel(p, n, true);                                                                     \
    }
ACCESSES(1)
ACCESSES(2)
ACCESSES(4)
ACCESSES(8)
ACCESSES(16)
EXPORT void __tsan_read_range(void *p, size_t bytes)
{
    of_kernel(p, bytes, false);
}
EXPORT void __tsan_write_range(void *p, size_t bytes)
{
    of_kernel(p, bytes, true);
}
EXPORT void __tsan_init() {}
EXPORT void __tsan_vptr_read(void **) {}
EXPORT void __tsan_vptr_update(void **, void *) {}

#define ATOMICS(T, n)                                                                              \
    EXPORT T __tsan_atomic##n##_load(const volatile T *p, int)                                     \
    {                                                                                              \
        return __atomic_load_n(p, __ATOMIC_SEQ_CST);                                               \
    }                                                                                              \
    EXPORT void __tsan_atomic##n##_store(volatile T *p, T v, int)                                  \
    {                                                                                              \
        __atomic_store_n(p, v, __ATOMIC_SEQ_CST);                                                  \
    }                                                                                              \
    EXPORT T __tsan_atomic##n##_exchange(volatile T *p, T v, int)                                  \
    {                                                                                              \
        return __atomic_exchange_n(p, v, __ATOMIC_SEQ_CST);                                        \
    }                                                                                              \
    EXPORT T __tsan_atomic##n##_fetch_add(volatile T *p, T v, int)                                 \
    {                                                                                              \
        return __atomic_fetch_add(p, v, __ATOMIC_SEQ_CST);                                         \
    }                                                                                              \
    EXPORT T __tsan_atomic##n##_fetch_sub(volatile T *p, T v, int)                                 \
    {                                                                                              \
        return __atomic_fetch_sub(p, v, __ATOMIC_SEQ_CST);                                         \
    }                                                                                              \
    EXPORT T __tsan_atomic##n##_fetch_and(volatile T *p, T v, int)                                 \
    {                                                                                              \
        return __atomic_fetch_and(p, v, __ATOMIC_SEQ_CST);                                         \
    }                                                                                              \
    EXPORT T __tsan_atomic##n##_fetch_or(volatile T *p, T v, int)                                  \
    {                                                                                              \
        return __atomic_fetch_or(p, v, __ATOMIC_SEQ_CST);                                          \
    }                                                                                              \
    EXPORT T __tsan_atomic##n##_fetch_xor(volatile T *p, T v, int)                                 \
    {                                                                                              \
        return __atomic_fetch_xor(p, v, __ATOMIC_SEQ_CST);                                         \
    }                                                                                              \
    EXPORT bool __tsan_atomic##n##_compare_exchange_strong(volatile T *p, T *expected, T v, int,   \
                                                           int)                                    \
    {                                                                                              \
        return __atomic_compare_exchange_n(p, expected, v, false, __ATOMIC_SEQ_CST,                \
                                           __ATOMIC_SEQ_CST);                                      \
    }                                                                                              \
    EXPORT bool __tsan_atomic##n##_compare_exchange_weak(volatile T *p, T *expected, T v, int,     \
                                                         int)                                      \
    {                                                                                              \
        return __atomic_compare_exchange_n(p, expected, v, false, __ATOMIC_SEQ_CST,                \
                                           __ATOMIC_SEQ_CST);                                      \
    }
ATOMICS(uint8_t, 8)
ATOMICS(uint32_t, 32)
ATOMICS(uint64_t, 64)
EXPORT void __tsan_atomic_thread_fence(int)
{
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}
}
#endif
