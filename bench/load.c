/* bench-load --model FILE: the speed of memd's load into the pool, compared with the machine's:
 * reading the file where it is not in the page cache, and a plain copy of as many bytes of memory
 * where it is.
 *
 * Each run measures every figure once, in turn, so that other work on the machine meets all of
 * them. The program prints medians. Dropping the file from the page cache needs no privilege; no
 * other program may hold the file. */
#include "base/clock.h"
#include "base/log.h"
#include "base/sort_doubles.h"
#include "base/strbuf.h"
#include "daemon/options.h"
#include "exec/pool.h"
#include "ipc/shm.h"
#include "memd/load/load.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_RUNS      100
#define READ_BYTES    (1u << 20)
#define COPY_BYTES    (512u << 10)
#define DIRECT_ALIGN  4096u
#define DIRECT_READER 8 /* threads that keep a disk busy */

enum figure {
    READ_DIRECT, /* past the page cache */
    READ_COLD,   /* through it, empty */
    LOAD_COLD,
    COPY_FRESH, /* into a new region, made like the pool */
    COPY_WARM,  /* into memory that is there */
    LOAD_CACHED,
    N_FIGURES
};

static const char *const figure_names[N_FIGURES] = {
    "reading the file, past the page cache",
    "reading the file, page cache empty",
    "load, page cache empty",
    "memory copy into a new pool",
    "memory copy into memory that is there",
    "load, file in the page cache",
};

struct bench {
    const char *model;
    uint64_t threads, runs;
    bool debug;
    struct gguf *g;
    struct pool_plan plan;
    uint64_t bytes; /* of weights */
    struct pool *pool, *readers;
    enum shm_pages pages;
    double seconds[N_FIGURES][MAX_RUNS];
    uint64_t run;
    /* of the current copy or read */
    uint8_t *from, *to;
    int fd;
    uint64_t fd_bytes;
    uint8_t **buffers; /* one a thread of either pool */
    _Atomic bool failed;
};

static int complain(const struct error *e)
{
    fprintf(stderr, "bench-load: %s\n", e->text);
    return 1;
}

/* ---- The yardsticks ---- */

static void copy_chunk(void *arg, unsigned thread, uint32_t chunk)
{
    const struct bench *b = arg;
    uint64_t at = (uint64_t)chunk * COPY_BYTES, left = b->bytes - at;
    (void)thread;
    memcpy(b->to + at, b->from + at, left < COPY_BYTES ? left : COPY_BYTES);
}

static void read_chunk(void *arg, unsigned thread, uint32_t chunk)
{
    struct bench *b = arg;
    uint64_t at = (uint64_t)chunk * READ_BYTES, left = b->fd_bytes - at;
    uint64_t wanted = left < READ_BYTES ? left : READ_BYTES;
    /* The end of a direct read may lie past the file's. */
    ssize_t got = pread(b->fd, b->buffers[thread], READ_BYTES, (off_t)at);
    if (got < (ssize_t)wanted)
        b->failed = true;
}

static uint32_t chunks(uint64_t bytes, uint64_t size)
{
    return (uint32_t)((bytes + size - 1) / size);
}

/* direct: past the page cache. */
static int read_files(struct bench *b, bool direct, double *seconds)
{
    struct error e;
    double started = clock_s();
    for (uint32_t i = 0; i < gguf_file_count(b->g); i++) {
        struct stat st;
        b->fd = open(gguf_path(b->g, i), O_RDONLY | O_CLOEXEC | (direct ? O_DIRECT : 0));
        if (b->fd < 0 || fstat(b->fd, &st)) {
            error_set(&e, ERROR_IO, "%s: %m", gguf_path(b->g, i));
            return complain(&e);
        }
        b->fd_bytes = (uint64_t)st.st_size;
        pool_run(direct ? b->readers : b->pool, read_chunk, b, chunks(b->fd_bytes, READ_BYTES));
        close(b->fd);
    }
    *seconds = clock_s() - started;
    if (b->failed) {
        error_set(&e, ERROR_IO, "the file cannot be read%s", direct ? " past the page cache" : "");
        return complain(&e);
    }
    return 0;
}

static void drop_page_cache(const struct bench *b)
{
    for (uint32_t i = 0; i < gguf_file_count(b->g); i++) {
        fdatasync(gguf_fd(b->g, i)); /* DONTNEED keeps dirty pages */
        posix_fadvise(gguf_fd(b->g, i), 0, 0, POSIX_FADV_DONTNEED);
    }
}

static int copy(struct bench *b, double *fresh, double *warm)
{
    struct shm region;
    struct error e;
    if (shm_create_large("bench-copy", b->plan.header.bytes, &region, &b->pages, &e))
        return complain(&e);
    b->to = region.base;
    double started = clock_s();
    pool_run(b->pool, copy_chunk, b, chunks(b->bytes, COPY_BYTES));
    double between = clock_s();
    pool_run(b->pool, copy_chunk, b, chunks(b->bytes, COPY_BYTES));
    *warm = clock_s() - between;
    *fresh = between - started;
    shm_close(&region);
    return 0;
}

/* ---- What is measured ---- */

static int load(struct bench *b, double *seconds)
{
    struct shm region;
    struct error e;
    if (shm_create_large("bench-pool", b->plan.header.bytes, &region, &b->pages, &e))
        return complain(&e);
    double started = clock_s();
    enum error_code code = load_weights(b->g, &b->plan, region.base, NULL, b->pool, NULL, NULL, &e);
    *seconds = clock_s() - started;
    shm_close(&region);
    return code ? complain(&e) : 0;
}

static int measure(struct bench *b)
{
    double s[N_FIGURES];
    drop_page_cache(b);
    int failed = read_files(b, true, &s[READ_DIRECT]);
    if (!failed)
        failed = read_files(b, false, &s[READ_COLD]);
    drop_page_cache(b);
    if (!failed)
        failed = load(b, &s[LOAD_COLD]);
    if (!failed)
        failed = copy(b, &s[COPY_FRESH], &s[COPY_WARM]);
    if (!failed)
        failed = load(b, &s[LOAD_CACHED]);
    for (int i = 0; i < N_FIGURES && !failed; i++)
        b->seconds[i][b->run] = s[i];
    return failed;
}

static double median(const double *values, uint64_t n)
{
    double sorted[MAX_RUNS];
    memcpy(sorted, values, n * sizeof *values);
    sort_doubles(sorted, n);
    return n % 2 ? sorted[n / 2] : (sorted[n / 2 - 1] + sorted[n / 2]) / 2;
}

/* The median over runs of the time of `b` over that of `a` in the same run. */
static double ratio(const struct bench *bench, enum figure a, enum figure b)
{
    double ratios[MAX_RUNS];
    for (uint64_t i = 0; i < bench->runs; i++)
        ratios[i] = bench->seconds[b][i] / bench->seconds[a][i];
    return median(ratios, bench->runs);
}

static void print(const struct bench *b)
{
    static const char *const pages[] = {"ordinary pages", "transparent huge pages",
                                        "reserved huge pages"};
    printf("%s: %.2f GB of weights, %u threads, %s, medians of %" PRIu64 " runs\n\n", b->model,
           (double)b->bytes * 1e-9, pool_thread_count(b->pool), pages[b->pages], b->runs);
    printf("| | s | GB/s |\n|---|---:|---:|\n");
    for (int i = 0; i < N_FIGURES; i++) {
        double s = median(b->seconds[i], b->runs);
        printf("| %s | %.3f | %.2f |\n", figure_names[i], s, (double)b->bytes * 1e-9 / s);
    }
    printf("\nload, page cache empty: %.0f %% of reading the file past it, %.0f %% of reading it "
           "plainly\n",
           100 * ratio(b, LOAD_COLD, READ_DIRECT), 100 * ratio(b, LOAD_COLD, READ_COLD));
    printf("load, file in the page cache: %.0f %% of a memory copy into a new pool, %.0f %% of one "
           "into memory that is there\n",
           100 * ratio(b, LOAD_CACHED, COPY_FRESH), 100 * ratio(b, LOAD_CACHED, COPY_WARM));
}

/* ---- The program ---- */

static enum error_code prepare(struct bench *b, struct error *e)
{
    enum error_code code = gguf_open(b->model, &b->g, e);
    if (!code)
        code = pool_plan_new(b->g, &b->plan, e);
    if (!code)
        code = pool_plan_read_factors(&b->plan, b->g, e);
    if (!code)
        code = pool_new("load", (unsigned)b->threads, false, 0, &b->pool, e);
    if (!code)
        code = pool_new("read", DIRECT_READER, false, 0, &b->readers, e);
    if (code)
        return code;
    unsigned n = pool_thread_count(b->pool);
    n = n < DIRECT_READER ? DIRECT_READER : n;
    b->bytes = b->plan.header.expert_bytes + b->plan.header.dense_bytes;
    b->from = malloc(b->bytes);
    b->buffers = calloc(n, sizeof *b->buffers);
    for (unsigned i = 0; b->buffers && i < n; i++)
        if (!(b->buffers[i] = aligned_alloc(DIRECT_ALIGN, READ_BYTES)))
            b->from = NULL;
    if (!b->from || !b->buffers)
        return error_set(e, ERROR_MEMORY, "no memory for %" PRIu64 " bytes to copy from", b->bytes);
    memset(b->from, 1, b->bytes);
    return ERROR_OK;
}

int main(int argc, char **argv)
{
    static struct bench b = {.runs = 5};
    const struct option_spec options[] = {
        {"model", OPTION_STRING, &b.model, 0, 0, "FILE", "the GGUF file to load"},
        {"threads", OPTION_UINT, &b.threads, 0, 256, "N", "loading threads; 0: one a core"},
        {"runs", OPTION_UINT, &b.runs, 1, MAX_RUNS, "N", "runs of each measurement"},
        {"debug", OPTION_BOOL, &b.debug, 0, 0, NULL, "log where each load's time went"},
        {0},
    };
    if (options_print_version("bench-load", argc, argv))
        return 0;
    if (options_wants_help(argc, argv)) {
        options_print_help(options, "bench-load", "--model FILE [OPTION]...",
                           "Compares memd's load with reading the file and with a memory copy.");
        return 0;
    }
    struct error e = {0};
    if (options_parse(options, argc, argv, NULL, &e) || !b.model) {
        fprintf(stderr, "bench-load: %s\n", b.model || e.text[0] ? e.text : "give --model FILE");
        return 2;
    }
    log_init("bench-load", b.debug ? LOG_LEVEL_DEBUG : LOG_LEVEL_WARN);
    if (prepare(&b, &e))
        return complain(&e);
    for (b.run = 0; b.run < b.runs; b.run++)
        if (measure(&b))
            return 1;
    print(&b);
    return fflush(stdout) ? 1 : 0;
}
