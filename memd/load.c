/* Loading; see load.h.
 *
 * The plan is turned into items (a matrix or vector of the file and where it goes) and these into pieces (some
 * rows of an item): the unit that a thread takes, reads and packs into tiles. Pieces are taken in the order
 * of the file as far as the plan follows it, so a disk reads ahead.
 *
 * The pool's pages are made a little ahead of the pieces, many with one system call: a fault for each costs more
 * than packing it, and memory that is not there is an error here and not a killed process.
 */
#include "load.h"

#include "pack.h"

#include "base/machine_memory.h"

#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define POPULATE_BYTES       (16ull << 20) /* at once */
#define POPULATE_AHEAD_BYTES (48ull << 20)

struct load_piece {
    uint32_t item, first_row, n_rows;
};

struct loader {
    const struct gguf *g;
    uint8_t *pool;
    uint64_t pool_bytes;
    _Atomic uint64_t populated; /* the pool's first bytes that have pages, or are about to */
    struct pack_item *items;
    struct load_piece *pieces;
    uint32_t n_items, n_pieces;
    uint8_t **buffers; /* one a thread, made at first use */
    load_progress *progress;
    void *progress_arg;
    uint64_t bytes_total;
    _Atomic uint64_t bytes_done;
    _Atomic uint32_t percent; /* last reported */
    _Atomic bool failed;
    struct error error; /* written by the thread that set failed */
};

static uint32_t rows_a_piece(const struct pack_item *item)
{
    if (item->form != PACK_MATRIX)
        return item->rows;
    uint64_t rows = LOAD_PIECE_BYTES / item->row_bytes / TILE_ROWS * TILE_ROWS;
    return rows < TILE_ROWS ? TILE_ROWS : rows > item->rows ? item->rows : (uint32_t)rows;
}

/* The most items that there can be. */
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

static bool plan_pieces(struct loader *l, const struct pool_plan *plan)
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
        n += (l->items[i].rows + rows_a_piece(&l->items[i]) - 1) / rows_a_piece(&l->items[i]);
    l->pieces = calloc(n, sizeof *l->pieces);
    if (!l->pieces)
        return false;
    for (uint32_t i = 0; i < l->n_items; i++) {
        const struct pack_item *item = &l->items[i];
        uint32_t step = rows_a_piece(item);
        l->bytes_total += item->rows * item->row_bytes;
        for (uint32_t first = 0; first < item->rows; first += step)
            l->pieces[l->n_pieces++] = (struct load_piece){
                i, first, item->rows - first < step ? item->rows - first : step};
    }
    return true;
}

static void fail(struct loader *l, const struct error *e)
{
    bool expected = false;
    if (atomic_compare_exchange_strong(&l->failed, &expected, true))
        l->error = *e;
}

/* Pages for what will be written next, at and a little after `target`. */
static enum error_code populate(struct loader *l, uint64_t target, struct error *e)
{
    uint64_t start = atomic_load(&l->populated);
    while (start < l->pool_bytes && start < target + POPULATE_AHEAD_BYTES) {
        if (!atomic_compare_exchange_weak(&l->populated, &start, start + POPULATE_BYTES))
            continue;
        uint64_t bytes =
            l->pool_bytes - start < POPULATE_BYTES ? l->pool_bytes - start : POPULATE_BYTES;
        enum error_code code = memory_populate(l->pool + start, bytes, e);
        if (code)
            return code;
        start = atomic_load(&l->populated);
    }
    return ERROR_OK;
}

static enum error_code read_fully(const struct loader *l, const struct pack_item *item,
                                  uint64_t offset, uint8_t *buffer, uint64_t bytes, struct error *e)
{
    int fd = gguf_fd(l->g, item->tensor->file);
    const char *path = gguf_path(l->g, item->tensor->file);
    for (uint64_t done = 0; done < bytes;) {
        ssize_t n = pread(fd, buffer + done, bytes - done, (off_t)(offset + done));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return error_set(e, ERROR_IO, "%s: reading tensor '%s' at byte %" PRIu64 ": %m", path,
                             item->tensor->name, offset + done);
        if (n == 0)
            return error_set(e, ERROR_IO,
                             "%s: ends at byte %" PRIu64 " within tensor '%s': the file was cut "
                             "while it was read",
                             path, offset + done, item->tensor->name);
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

static void load_piece(void *arg, unsigned thread, uint32_t index)
{
    struct loader *l = arg;
    const struct load_piece *piece = &l->pieces[index];
    const struct pack_item *item = &l->items[piece->item];
    if (atomic_load_explicit(&l->failed, memory_order_relaxed))
        return;
    uint64_t bytes = piece->n_rows * item->row_bytes;
    struct error e;
    uint64_t most = TILE_ROWS * item->row_bytes;
    if (most < LOAD_PIECE_BYTES)
        most = LOAD_PIECE_BYTES;
    uint8_t *buffer = l->buffers[thread];
    if (!buffer || bytes > LOAD_PIECE_BYTES) {
        buffer = realloc(buffer, bytes > most ? bytes : most);
        if (!buffer) {
            error_set(&e, ERROR_MEMORY, "no memory to read tensor '%s'", item->tensor->name);
            fail(l, &e);
            return;
        }
        l->buffers[thread] = buffer;
    }
    uint64_t last =
        piece->first_row + piece->n_rows; /* of a whole matrix; a segment's rows are near */
    uint64_t offset = item->segment_bytes || item->form != PACK_MATRIX
                          ? 0
                          : last / TILE_ROWS * tile_row_bytes(item->tensor->type, item->cols);
    if (populate(l, item->target + offset, &e) ||
        read_fully(l, item, item->source + piece->first_row * item->row_bytes, buffer, bytes, &e)) {
        fail(l, &e);
        return;
    }
    if (pack_rows(item, piece->first_row, piece->n_rows, buffer, l->pool, &e)) {
        fail(l, &e);
        return;
    }
    report(l, bytes);
}

enum error_code load_weights(const struct gguf *g, const struct pool_plan *plan, uint8_t *pool,
                             struct pool *threads, load_progress *progress, void *progress_arg,
                             struct error *e)
{
    struct loader l = {.g = g,
                       .pool = pool,
                       .pool_bytes = plan->header.bytes,
                       .progress = progress,
                       .progress_arg = progress_arg};
    unsigned n_threads = pool_thread_count(threads);
    enum error_code code = ERROR_OK;
    l.buffers = calloc(n_threads, sizeof *l.buffers);
    if (!l.buffers || !plan_pieces(&l, plan))
        code = error_set(e, ERROR_MEMORY, "no memory for the list of weights to load");
    else
        pool_run(threads, load_piece, &l, l.n_pieces);
    if (!code && atomic_load(&l.failed)) {
        code = l.error.code;
        if (e)
            *e = l.error;
    }
    for (unsigned t = 0; l.buffers && t < n_threads; t++)
        free(l.buffers[t]);
    free(l.buffers);
    free(l.items);
    free(l.pieces);
    return code;
}
