/* Loading; see load.h.
 *
 * The plan becomes items (a matrix or vector of the file and its place in memory), and the items
 * become chunks (some rows of an item). A thread takes a chunk, reads it and packs it into tiles; a
 * chunk is small enough to stay in the second-level cache between the two. The threads take the
 * chunks in the order of the file.
 *
 * The threads copy what the page cache has. From the first chunk on that is not there, they ask the
 * kernel for the file READ_AHEAD_BYTES in advance, so the disk reads while they pack.
 *
 * The threads make the pool's pages shortly before they write them, a block with one system call: a
 * fault for each page costs more than packing it. Where memory runs out, that call fails; a fault
 * would kill the process. */
#include "load.h"

#include "pack.h"

#include "base/clock.h"
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#define POPULATE_BYTES                                                                             \
    (512ull << 10) /* at once: still in the second-level cache when they are written */
#define READ_AHEAD_BYTES (64ull << 20)

struct load_chunk {
    uint32_t item, first_row, n_rows;
};

/* One a thread. */
struct load_thread {
    _Alignas(64) uint8_t *buffer; /* allocated at first use */
    uint64_t buffer_bytes;
    uint64_t read_ns, populate_ns, pack_ns;
};

struct loader {
    const struct gguf *g;
    uint8_t *pool;
    struct numa_places *places;
    uint64_t pool_bytes;
    _Atomic bool *populated; /* [blocks of POPULATE_BYTES]: a thread makes its pages, or has */
    struct pack_item *items;
    struct load_chunk *chunks; /* in the file's order */
    uint32_t n_items, n_chunks;
    struct load_thread *threads;
    _Atomic bool cold;        /* a chunk was not in the page cache */
    _Atomic uint32_t n_asked; /* leading chunks that the kernel was asked for in advance */
    load_progress *progress;
    void *progress_arg;
    uint64_t bytes_total;
    _Atomic uint64_t bytes_done;
    _Atomic uint32_t percent; /* last reported */
    _Atomic bool failed;
    struct error error; /* written by the thread that set failed */
};

static uint32_t rows_a_chunk(const struct pack_item *item)
{
    if (item->form != PACK_MATRIX)
        return item->rows;
    uint64_t rows = LOAD_CHUNK_BYTES / item->row_bytes / TILE_ROWS * TILE_ROWS;
    return rows < TILE_ROWS ? TILE_ROWS : rows > item->rows ? item->rows : (uint32_t)rows;
}

/* An upper bound. */
static uint64_t count_items(const struct pool_plan *plan)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < plan->header.n_tensors; i++)
        n += plan->tensors[i].planes;
    for (uint32_t layer = 0; layer < plan->header.n_layers; layer++) {
        const struct pool_slabs *s = &plan->slabs[layer];
        n += (uint64_t)s->n_experts * PACK_EXPERT_ITEMS;
    }
    return n;
}

static uint64_t chunk_offset(const struct loader *l, const struct load_chunk *p)
{
    const struct pack_item *item = &l->items[p->item];
    return item->source + p->first_row * item->row_bytes;
}

static uint64_t chunk_bytes(const struct loader *l, const struct load_chunk *p)
{
    return p->n_rows * l->items[p->item].row_bytes;
}

static int by_place_in_file(const void *a, const void *b, void *arg)
{
    const struct loader *l = arg;
    const struct load_chunk *p = a, *q = b;
    uint32_t file_p = l->items[p->item].tensor->file, file_q = l->items[q->item].tensor->file;
    uint64_t at_p = chunk_offset(l, p), at_q = chunk_offset(l, q);
    return file_p != file_q ? (file_p > file_q) - (file_p < file_q) : (at_p > at_q) - (at_p < at_q);
}

static bool plan_chunks(struct loader *l, const struct pool_plan *plan)
{
    const struct pool_header *h = &plan->header;
    l->items = calloc(count_items(plan), sizeof *l->items);
    if (!l->items)
        return false;
    for (uint32_t i = 0; i < h->n_tensors; i++) {
        pack_dense_items(plan, i, l->items + l->n_items);
        l->n_items += plan->tensors[i].planes;
    }
    for (uint32_t layer = 0; layer < h->n_layers && !h->tiered; layer++) {
        const struct pool_slabs *s = &plan->slabs[layer];
        for (uint32_t expert = 0; expert < s->n_experts; expert++)
            l->n_items += pack_expert_items(plan, layer, expert, s->offset + expert * s->slab_bytes,
                                            l->items + l->n_items);
    }
    uint64_t n = 0;
    for (uint32_t i = 0; i < l->n_items; i++)
        n += (l->items[i].rows + rows_a_chunk(&l->items[i]) - 1) / rows_a_chunk(&l->items[i]);
    l->chunks = calloc(n, sizeof *l->chunks);
    if (!l->chunks)
        return false;
    for (uint32_t i = 0; i < l->n_items; i++) {
        const struct pack_item *item = &l->items[i];
        uint32_t step = rows_a_chunk(item);
        l->bytes_total += item->rows * item->row_bytes;
        for (uint32_t first = 0; first < item->rows; first += step)
            l->chunks[l->n_chunks++] = (struct load_chunk){
                i, first, item->rows - first < step ? item->rows - first : step};
    }
    qsort_r(l->chunks, l->n_chunks, sizeof *l->chunks, by_place_in_file, l);
    return true;
}

static void fail(struct loader *l, const struct error *e)
{
    bool expected = false;
    if (atomic_compare_exchange_strong(&l->failed, &expected, true))
        l->error = *e;
}

/* Makes the pages of the blocks that the pool's bytes [start, end) lie in, unless a thread has
 * taken that on. If another thread is still at it, a write in between makes its page itself. */
static enum error_code populate(struct loader *l, uint64_t start, uint64_t end, struct error *e)
{
    for (uint64_t block = start / POPULATE_BYTES; block * POPULATE_BYTES < end; block++) {
        if (atomic_exchange_explicit(&l->populated[block], true, memory_order_relaxed))
            continue;
        uint64_t at = block * POPULATE_BYTES, left = l->pool_bytes - at;
        enum error_code code =
            numa_populate(l->places, l->pool, at, left < POPULATE_BYTES ? left : POPULATE_BYTES, e);
        if (code)
            return code;
    }
    return ERROR_OK;
}

static enum error_code populate_chunk(struct loader *l, const struct load_chunk *chunk,
                                      struct error *e)
{
    const struct pack_item *item = &l->items[chunk->item];
    enum error_code code = ERROR_OK;
    for (uint32_t part = 0; part < item->column_parts && !code; part++) {
        uint64_t start, end;
        pack_item_target(item, chunk->first_row, chunk->n_rows, part, &start, &end);
        code = populate(l, start, end, e);
    }
    return code;
}

/* Asks the kernel for the chunks up to READ_AHEAD_BYTES after this one. */
static void read_early(struct loader *l, uint32_t index)
{
    uint64_t until = chunk_offset(l, &l->chunks[index]) + READ_AHEAD_BYTES;
    uint32_t file = l->items[l->chunks[index].item].tensor->file;
    uint32_t next = atomic_load_explicit(&l->n_asked, memory_order_relaxed);
    while (next < l->n_chunks) {
        const struct load_chunk *p = &l->chunks[next];
        const struct gguf_tensor *tensor = l->items[p->item].tensor;
        if (tensor->file > file || (tensor->file == file && chunk_offset(l, p) > until))
            return;
        uint32_t after =
            next <= index ? index + 1 : next + 1; /* not for chunks that are being read */
        if (!atomic_compare_exchange_weak(&l->n_asked, &next, after))
            continue;
        if (next > index)
            posix_fadvise(gguf_fd(l->g, tensor->file), (off_t)chunk_offset(l, p),
                          (off_t)chunk_bytes(l, p), POSIX_FADV_WILLNEED);
        next = after;
    }
}

/* Reads what the page cache has. Returns bytes, or below 0. */
static ssize_t read_cached(int fd, uint8_t *buffer, uint64_t bytes, uint64_t offset)
{
    struct iovec whole = {buffer, bytes};
    return preadv2(fd, &whole, 1, (off_t)offset, RWF_NOWAIT);
}

static enum error_code read_chunk(struct loader *l, uint32_t index, uint8_t *buffer,
                                  struct error *e)
{
    const struct load_chunk *chunk = &l->chunks[index];
    const struct gguf_tensor *tensor = l->items[chunk->item].tensor;
    int fd = gguf_fd(l->g, tensor->file);
    uint64_t offset = chunk_offset(l, chunk), bytes = chunk_bytes(l, chunk);
    if (atomic_load_explicit(&l->cold, memory_order_relaxed))
        read_early(l, index);
    ssize_t n = read_cached(fd, buffer, bytes, offset);
    uint64_t done = n > 0 ? (uint64_t)n : 0;
    if (done < bytes && !atomic_exchange_explicit(&l->cold, true, memory_order_relaxed))
        read_early(l, index);
    while (done < bytes) {
        n = pread(fd, buffer + done, bytes - done, (off_t)(offset + done));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return error_set(e, ERROR_IO, "%s: reading tensor '%s' at byte %" PRIu64 ": %m",
                             gguf_path(l->g, tensor->file), tensor->name, offset + done);
        if (n == 0)
            return error_set(e, ERROR_IO,
                             "%s: ends at byte %" PRIu64 " within tensor '%s': the file was cut "
                             "while it was read",
                             gguf_path(l->g, tensor->file), offset + done, tensor->name);
        done += (uint64_t)n;
    }
    return ERROR_OK;
}

static void report(struct loader *l, uint64_t bytes)
{
    uint64_t done = atomic_fetch_add(&l->bytes_done, bytes) + bytes;
    uint32_t percent = (uint32_t)(done * 100 / l->bytes_total);
    uint32_t last = atomic_load(&l->percent);
    if (percent > last && atomic_compare_exchange_strong(&l->percent, &last, percent) &&
        l->progress)
        l->progress(l->progress_arg, done, l->bytes_total);
}

/* The thread's buffer, of at least `bytes`; NULL: no memory. */
static uint8_t *buffer_for(struct load_thread *t, uint64_t bytes)
{
    if (bytes <= t->buffer_bytes)
        return t->buffer;
    free(t->buffer);
    t->buffer_bytes = bytes > LOAD_CHUNK_BYTES ? bytes : LOAD_CHUNK_BYTES;
    t->buffer = malloc(t->buffer_bytes);
    if (!t->buffer)
        t->buffer_bytes = 0;
    return t->buffer;
}

static enum error_code load_rows(struct loader *l, struct load_thread *t, uint32_t index,
                                 struct error *e)
{
    const struct load_chunk *chunk = &l->chunks[index];
    const struct pack_item *item = &l->items[chunk->item];
    uint8_t *buffer = buffer_for(t, chunk_bytes(l, chunk));
    if (!buffer)
        return error_set(e, ERROR_MEMORY, "no memory to read tensor '%s'", item->tensor->name);
    uint64_t begun = clock_ns();
    enum error_code code = read_chunk(l, index, buffer, e);
    uint64_t read = clock_ns();
    if (!code)
        code = populate_chunk(l, chunk, e);
    uint64_t populated = clock_ns();
    if (!code)
        code = pack_item_rows(item, chunk->first_row, chunk->n_rows, buffer, l->pool, e);
    t->read_ns += read - begun;
    t->populate_ns += populated - read;
    t->pack_ns += clock_ns() - populated;
    return code;
}

static void load_chunk(void *arg, unsigned thread, uint32_t index)
{
    struct loader *l = arg;
    struct error e;
    if (atomic_load_explicit(&l->failed, memory_order_relaxed))
        return;
    if (load_rows(l, &l->threads[thread], index, &e))
        fail(l, &e);
    else
        report(l, chunk_bytes(l, &l->chunks[index]));
}

static bool allocate(struct loader *l, const struct pool_plan *plan, unsigned n_threads)
{
    l->threads = aligned_alloc(_Alignof(struct load_thread), n_threads * sizeof *l->threads);
    l->populated = calloc(l->pool_bytes / POPULATE_BYTES + 1, sizeof *l->populated);
    if (l->threads)
        memset(l->threads, 0, n_threads * sizeof *l->threads);
    return l->threads && l->populated && plan_chunks(l, plan);
}

static void log_times(const struct loader *l, unsigned n_threads)
{
    uint64_t read = 0, populate = 0, pack = 0;
    for (unsigned i = 0; i < n_threads; i++) {
        read += l->threads[i].read_ns;
        populate += l->threads[i].populate_ns;
        pack += l->threads[i].pack_ns;
    }
    log_debug("load: %s the page cache; %u threads' time: %.2f s reading, %.2f s making pages, "
              "%.2f s packing",
              atomic_load(&l->cold) ? "not all from" : "from", n_threads, (double)read * 1e-9,
              (double)populate * 1e-9, (double)pack * 1e-9);
}

enum error_code load_weights(const struct gguf *g, const struct pool_plan *plan, uint8_t *pool,
                             struct numa_places *places, struct pool *threads,
                             load_progress *progress, void *progress_arg, struct error *e)
{
    struct loader l = {.g = g,
                       .pool = pool,
                       .places = places,
                       .pool_bytes = plan->header.bytes,
                       .progress = progress,
                       .progress_arg = progress_arg};
    unsigned n_threads = pool_thread_count(threads);
    enum error_code code = ERROR_OK;
    if (!allocate(&l, plan, n_threads))
        code = error_set(e, ERROR_MEMORY, "no memory for the list of weights to load");
    else
        pool_run(threads, load_chunk, &l, l.n_chunks);
    if (!code)
        log_times(&l, n_threads);
    if (!code && atomic_load(&l.failed)) {
        code = l.error.code;
        if (e)
            *e = l.error;
    }
    for (unsigned t = 0; l.threads && t < n_threads; t++)
        free(l.threads[t].buffer);
    free(l.threads);
    free((void *)l.populated);
    free(l.items);
    free(l.chunks);
    return code;
}
