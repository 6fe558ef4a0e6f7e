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

#include "quant/quant.h"

#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef MADV_POPULATE_WRITE /* Linux 5.14; older C library headers lack it */
#define MADV_POPULATE_WRITE 23
#endif
#define POPULATE_BYTES       (16ull << 20) /* at once */
#define POPULATE_AHEAD_BYTES (48ull << 20)

/* A matrix of the file, and how it is cut over segments: gate and up by rows, down by columns. */
struct load_item {
    const struct gguf_tensor *tensor;
    uint64_t source; /* offset of the first row in the tensor's file */
    uint64_t row_bytes;
    uint32_t rows, cols;
    uint32_t rows_a_segment; /* rows where it is not cut by rows */
    uint32_t column_parts;   /* 1 where it is not cut by columns */
    uint64_t target;         /* offset in the pool of the first segment's part */
    uint64_t segment_bytes;  /* from one segment's part to the next's */
    enum load_form {
        LOAD_MATRIX,     /* packed into tiles */
        LOAD_VECTOR,     /* one row, as float32 */
        LOAD_TRANSPOSED, /* cols rows of float32 tiles, each of a column */
    } form;
};

struct load_piece {
    uint32_t item, first_row, n_rows;
};

struct loader {
    const struct gguf *g;
    uint8_t *pool;
    uint64_t pool_bytes;
    _Atomic uint64_t populated; /* the pool's first bytes that have pages, or are about to */
    struct load_item *items;
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

static uint32_t rows_a_piece(const struct load_item *item)
{
    if (item->form != LOAD_MATRIX)
        return item->rows;
    uint64_t rows = LOAD_PIECE_BYTES / item->row_bytes / TILE_ROWS * TILE_ROWS;
    return rows < TILE_ROWS ? TILE_ROWS : rows > item->rows ? item->rows : (uint32_t)rows;
}

/* The planes of a dense tensor, an item each. */
static void add_dense(struct loader *l, const struct pool_plan *plan, uint32_t i)
{
    const struct pool_tensor *t = &plan->tensors[i];
    const struct pool_source *from = &plan->sources[i];
    bool vector = t->form == POOL_VECTOR;
    uint32_t file_cols = vector ? t->rows * t->cols : from->transposed ? t->rows : t->cols;
    uint64_t row_bytes = quant_row_bytes(from->tensor->type, file_cols);
    uint64_t first =
        from->first_row * (vector ? quant_row_bytes(from->tensor->type, 1) : row_bytes);
    for (uint32_t plane = 0; plane < t->planes; plane++)
        l->items[l->n_items++] = (struct load_item){
            .tensor = from->tensor,
            .source = from->tensor->offset + first + (uint64_t)plane * from->plane_rows * row_bytes,
            .row_bytes = row_bytes,
            .rows = vector             ? 1
                    : from->transposed ? t->cols
                                       : t->rows,
            .cols = file_cols,
            .rows_a_segment = t->rows,
            .column_parts = 1,
            .target = t->offset + plane * (t->bytes / t->planes),
            .form = vector             ? LOAD_VECTOR
                    : from->transposed ? LOAD_TRANSPOSED
                                       : LOAD_MATRIX,
        };
}

/* One bias of an expert, cut over its segments. */
static void add_expert_bias(struct loader *l, const struct pool_slabs *s,
                            const struct pool_source *from, uint32_t expert, uint64_t target)
{
    uint64_t segment_row = quant_row_bytes(from->tensor->type, s->segment_width);
    for (uint32_t segment = 0; segment < s->n_segments; segment++)
        l->items[l->n_items++] = (struct load_item){
            .tensor = from->tensor,
            .source = from->tensor->offset + (expert * s->n_segments + segment) * segment_row,
            .row_bytes = segment_row,
            .rows = 1,
            .cols = s->segment_width,
            .rows_a_segment = 1,
            .column_parts = 1,
            .target = target + segment * s->segment_bytes,
            .form = LOAD_VECTOR,
        };
}

static void add_expert(struct loader *l, const struct pool_plan *plan, uint32_t layer,
                       uint32_t expert)
{
    const struct pool_slabs *s = &plan->slabs[layer];
    const struct pool_expert_sources *from = &plan->experts[layer];
    uint64_t slab = s->offset + expert * s->slab_bytes;
    uint32_t width = s->segment_width * s->n_segments;
    const struct {
        const struct pool_source *from;
        uint32_t rows, cols, rows_a_segment, column_parts;
        uint64_t at;
    } parts[] = {
        {&from->gate, width, s->d_model, s->segment_width, 1, 0},
        {&from->up, width, s->d_model, s->segment_width, 1, s->up_offset},
        {&from->down, s->d_model, width, s->d_model, s->n_segments, s->down_offset},
    };
    for (int i = 0; i < 3; i++) {
        const struct pool_source *part = parts[i].from;
        uint64_t row_bytes = quant_row_bytes(part->tensor->type, parts[i].cols);
        l->items[l->n_items++] = (struct load_item){
            .tensor = part->tensor,
            .source = part->tensor->offset +
                      (part->first_row + (uint64_t)expert * part->plane_rows) * row_bytes,
            .row_bytes = row_bytes,
            .rows = parts[i].rows,
            .cols = parts[i].cols,
            .rows_a_segment = parts[i].rows_a_segment,
            .column_parts = parts[i].column_parts,
            .target = slab + parts[i].at,
            .segment_bytes = s->segment_bytes,
            .form = LOAD_MATRIX,
        };
    }
    if (s->bias_offset) {
        uint64_t bias = slab + s->bias_offset;
        add_expert_bias(l, s, &from->gate_bias, expert, bias);
        add_expert_bias(l, s, &from->up_bias, expert, bias + s->segment_width * sizeof(float));
    }
}

/* The most items that add_dense and add_expert make. */
static uint64_t count_items(const struct pool_plan *plan)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < plan->header.n_tensors; i++)
        n += plan->tensors[i].planes;
    for (uint32_t layer = 0; layer < plan->header.n_layers; layer++) {
        const struct pool_slabs *s = &plan->slabs[layer];
        n += s->n_experts * (3ull + (s->bias_offset ? 2 * s->n_segments : 0));
    }
    return n;
}

static bool plan_pieces(struct loader *l, const struct pool_plan *plan)
{
    const struct pool_header *h = &plan->header;
    l->items = calloc(count_items(plan), sizeof *l->items);
    if (!l->items)
        return false;
    for (uint32_t i = 0; i < h->n_tensors; i++)
        add_dense(l, plan, i);
    for (uint32_t layer = 0; layer < h->n_layers; layer++)
        for (uint32_t expert = 0; expert < plan->slabs[layer].n_experts; expert++)
            add_expert(l, plan, layer, expert);
    uint64_t n = 0;
    for (uint32_t i = 0; i < l->n_items; i++)
        n += (l->items[i].rows + rows_a_piece(&l->items[i]) - 1) / rows_a_piece(&l->items[i]);
    l->pieces = calloc(n, sizeof *l->pieces);
    if (!l->pieces)
        return false;
    for (uint32_t i = 0; i < l->n_items; i++) {
        const struct load_item *item = &l->items[i];
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
        if (madvise(l->pool + start, bytes, MADV_POPULATE_WRITE) &&
            errno != EINVAL) /* unknown there */
            return error_set(e, ERROR_MEMORY,
                             "no memory for byte %" PRIu64 " of the pool's %" PRIu64
                             ": %m; end other programs or take a smaller quantisation",
                             start, l->pool_bytes);
        start = atomic_load(&l->populated);
    }
    return ERROR_OK;
}

static enum error_code read_fully(const struct loader *l, const struct load_item *item,
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

static void pack_rows(const struct loader *l, const struct load_item *item, uint32_t first_row,
                      uint32_t n_rows, const uint8_t *rows)
{
    const struct tensor_type_info *type = tensor_type_info(item->tensor->type);
    uint32_t cols = item->cols / item->column_parts;
    size_t tile_row = tile_row_bytes(item->tensor->type, cols);
    uint64_t part_bytes = cols / type->block_values * type->block_bytes;
    for (uint32_t done = 0; done < n_rows; done += TILE_ROWS) {
        uint32_t row = first_row + done;
        uint32_t n = n_rows - done < TILE_ROWS ? n_rows - done : TILE_ROWS;
        uint64_t target = item->target + row / item->rows_a_segment * item->segment_bytes +
                          row % item->rows_a_segment / TILE_ROWS * tile_row;
        for (uint32_t part = 0; part < item->column_parts; part++)
            tile_pack(item->tensor->type, cols, n,
                      rows + done * item->row_bytes + part * part_bytes, item->row_bytes,
                      l->pool + target + part * item->segment_bytes);
    }
}

/* The matrix of the file on its side, as float32: a quantised block lies along what becomes a column. */
static enum error_code pack_transposed(const struct loader *l, const struct load_item *item,
                                       const uint8_t *rows, struct error *e)
{
    size_t values = (size_t)item->rows * item->cols;
    float *plain = malloc(2 * values * sizeof *plain), *turned = plain + values;
    if (!plain)
        return error_set(e, ERROR_MEMORY, "no memory to turn tensor '%s'", item->tensor->name);
    for (uint32_t row = 0; row < item->rows; row++) {
        float *line = plain + (size_t)row * item->cols;
        quant_dequantize(item->tensor->type, rows + row * item->row_bytes, line, item->cols);
        for (uint32_t col = 0; col < item->cols; col++)
            turned[(size_t)col * item->rows + row] = line[col];
    }
    size_t tile_row = tile_row_bytes(TENSOR_F32, item->rows);
    for (uint32_t done = 0; done < item->cols; done += TILE_ROWS) {
        uint32_t n = item->cols - done < TILE_ROWS ? item->cols - done : TILE_ROWS;
        tile_pack(TENSOR_F32, item->rows, n, (const uint8_t *)(turned + (size_t)done * item->rows),
                  item->rows * sizeof(float), l->pool + item->target + done / TILE_ROWS * tile_row);
    }
    free(plain);
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
    const struct load_item *item = &l->items[piece->item];
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
    uint64_t offset = item->segment_bytes || item->form != LOAD_MATRIX
                          ? 0
                          : last / TILE_ROWS * tile_row_bytes(item->tensor->type, item->cols);
    if (populate(l, item->target + offset, &e) ||
        read_fully(l, item, item->source + piece->first_row * item->row_bytes, buffer, bytes, &e)) {
        fail(l, &e);
        return;
    }
    if (item->form == LOAD_VECTOR)
        quant_dequantize(item->tensor->type, buffer, (float *)(l->pool + item->target), item->cols);
    else if (item->form == LOAD_MATRIX)
        pack_rows(l, item, piece->first_row, piece->n_rows, buffer);
    else if (pack_transposed(l, item, buffer, &e)) {
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
