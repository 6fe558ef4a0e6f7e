/* Reading memory at full speed; see bandwidth.h.
 *
 * Each thread reads a part of its own by yardstick_read. The memory asks for huge pages, so
 * that the figure is the memory's and not the page tables'.
 */
#include "bandwidth.h"

#include "yardsticks.h"

#include "base/clock.h"
#include "base/machine_memory.h"

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define BYTES_WANTED ((size_t)1 << 30)
#define MEASURE_NS   300000000u         /* longer than the scheduler's turns */
#define BYTES_LEAST  ((size_t)64 << 20) /* less would measure caches */

struct reader {
    struct bandwidth *owner;
    const uint8_t *memory;
    size_t bytes;
    pthread_t thread;
    uint64_t start_ns, end_ns;
    uint64_t sum; /* keeps the compiler from dropping the reads */
};

struct bandwidth {
    uint8_t *memory;
    size_t bytes;
    unsigned n_threads;
    pthread_mutex_t gate; /* held while the threads are started, so that they begin together */
    struct reader *readers;
};

static void *reader_main(void *arg)
{
    struct reader *r = arg;
    pthread_mutex_lock(&r->owner->gate);
    pthread_mutex_unlock(&r->owner->gate);
    r->start_ns = clock_ns();
    r->sum = yardstick_read(r->memory, r->bytes);
    r->end_ns = clock_ns();
    return NULL;
}

static size_t bytes_to_read(void)
{
    size_t quarter = memory_available_bytes() / 4;
    size_t bytes = quarter && quarter < BYTES_WANTED ? quarter : BYTES_WANTED;
    return bytes < BYTES_LEAST ? BYTES_LEAST : bytes;
}

enum error_code bandwidth_new(unsigned n_threads, struct bandwidth **out, struct error *e)
{
    struct bandwidth *b = calloc(1, sizeof *b);
    struct reader *readers = calloc(n_threads, sizeof *readers);
    size_t bytes = bytes_to_read();
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (!b || !readers || memory == MAP_FAILED) {
        if (memory != MAP_FAILED)
            munmap(memory, bytes);
        free(readers);
        free(b);
        return error_set(e, ERROR_MEMORY, "no memory for measuring its bandwidth (%zu MB)",
                         bytes / 1000000);
    }
    madvise(memory, bytes, MADV_HUGEPAGE); /* may be refused: then it reads a little slower */
    memset(memory, 1, bytes);              /* untouched pages would all be one page of zeros */
    *b = (struct bandwidth){memory, bytes, n_threads, .readers = readers};
    pthread_mutex_init(&b->gate, NULL);
    *out = b;
    return ERROR_OK;
}

void bandwidth_free(struct bandwidth *b)
{
    if (!b)
        return;
    pthread_mutex_destroy(&b->gate);
    munmap(b->memory, b->bytes);
    free(b->readers);
    free(b);
}

/* One pass: adds what was read and how long it took. */
static enum error_code read_once(struct bandwidth *b, uint64_t *bytes, uint64_t *ns,
                                 struct error *e)
{
    size_t part = b->bytes / b->n_threads / 4096 * 4096;
    unsigned n = 0;
    int failed = 0;
    pthread_mutex_lock(&b->gate);
    for (; n < b->n_threads && !failed; n += !failed) {
        struct reader *r = &b->readers[n];
        *r = (struct reader){.owner = b, .memory = b->memory + n * part, .bytes = part};
        failed = pthread_create(&r->thread, NULL, reader_main, r);
    }
    pthread_mutex_unlock(&b->gate);
    uint64_t start_ns = UINT64_MAX, end_ns = 0;
    for (unsigned i = 0; i < n; i++) {
        const struct reader *r = &b->readers[i];
        pthread_join(r->thread, NULL);
        start_ns = r->start_ns < start_ns ? r->start_ns : start_ns;
        end_ns = r->end_ns > end_ns ? r->end_ns : end_ns;
        *bytes += r->bytes;
    }
    if (failed)
        return error_set(e, ERROR_MEMORY, "cannot start thread %u of %u: %s", n + 1, b->n_threads,
                         strerror(failed));
    *ns += end_ns - start_ns;
    return ERROR_OK;
}

enum error_code bandwidth_measure(struct bandwidth *b, double *bytes_per_s, struct error *e)
{
    uint64_t bytes = 0, ns = 0;
    while (ns < MEASURE_NS)
        if (read_once(b, &bytes, &ns, e))
            return e->code;
    *bytes_per_s = (double)bytes / ((double)ns * 1e-9);
    return ERROR_OK;
}
