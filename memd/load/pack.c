/* Packing; see pack.h. */
#include "pack.h"

#include "quant/finite.h"
#include "quant/quant.h"

#include <inttypes.h>
#include <stdlib.h>

void pack_dense_items(const struct pool_plan *plan, uint32_t tensor, struct pack_item *items)
{
    const struct pool_tensor *t = &plan->tensors[tensor];
    const struct pool_source *from = &plan->sources[tensor];
    bool vector = t->form == POOL_VECTOR;
    uint32_t file_cols = vector ? t->rows * t->cols : from->transposed ? t->rows : t->cols;
    uint64_t row_bytes = quant_row_bytes(from->tensor->type, file_cols);
    uint64_t first =
        from->first_row * (vector ? quant_row_bytes(from->tensor->type, 1) : row_bytes);
    for (uint32_t plane = 0; plane < t->planes; plane++)
        items[plane] = (struct pack_item){
            .tensor = from->tensor,
            .source = from->tensor->offset + first + (uint64_t)plane * from->plane_rows * row_bytes,
            .row_bytes = row_bytes,
            .rows = vector             ? 1
                    : from->transposed ? t->cols
                                       : t->rows,
            .cols = file_cols,
            .rows_a_segment = t->rows,
            .column_parts = 1,
            .factor = pool_source_factor(plan, from, plane),
            .target = t->offset + plane * (t->bytes / t->planes),
            .form = vector             ? PACK_VECTORS
                    : from->transposed ? PACK_TRANSPOSED
                                       : PACK_MATRIX,
        };
}

/* One bias of an expert: a row for each segment. */
static struct pack_item bias_item(const struct pool_slabs *s, const struct pool_source *from,
                                  uint32_t expert, uint64_t target)
{
    uint64_t segment_row = quant_row_bytes(from->tensor->type, s->segment_width);
    return (struct pack_item){
        .tensor = from->tensor,
        .source = from->tensor->offset + (uint64_t)expert * s->n_segments * segment_row,
        .row_bytes = segment_row,
        .rows = s->n_segments,
        .cols = s->segment_width,
        .rows_a_segment = 1,
        .column_parts = 1,
        .target = target,
        .segment_bytes = s->segment_bytes,
        .form = PACK_VECTORS,
    };
}

uint32_t pack_expert_items(const struct pool_plan *plan, uint32_t layer, uint32_t expert,
                           uint64_t slab, struct pack_item items[PACK_EXPERT_ITEMS])
{
    const struct pool_slabs *s = &plan->slabs[layer];
    const struct pool_expert_sources *from = &plan->experts[layer];
    uint32_t width = s->segment_width * s->n_segments, n = 0;
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
        if (!part->tensor) /* no gate */
            continue;
        uint64_t row_bytes = quant_row_bytes(part->tensor->type, parts[i].cols);
        items[n++] = (struct pack_item){
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
            .factor = pool_source_factor(plan, part, expert),
            .form = PACK_MATRIX,
        };
    }
    if (s->bias_offset) {
        uint64_t bias = slab + s->bias_offset;
        items[n++] = bias_item(s, &from->gate_bias, expert, bias);
        items[n++] = bias_item(s, &from->up_bias, expert, bias + s->segment_width * sizeof(float));
    }
    return n;
}

/* The offset of the tiles of 16 rows from `row` on, in the first column part. */
static uint64_t tile_row_target(const struct pack_item *item, uint32_t row, size_t tile_row)
{
    return item->target + row / item->rows_a_segment * item->segment_bytes +
           row % item->rows_a_segment / TILE_ROWS * tile_row;
}

void pack_item_target(const struct pack_item *item, uint32_t first_row, uint32_t n_rows,
                      uint32_t part, uint64_t *start, uint64_t *end)
{
    enum tensor_type type = item->tensor->type;
    uint32_t last_row = first_row + n_rows - 1;
    switch (item->form) {
    case PACK_MATRIX: {
        size_t tile_row = tile_row_bytes(type, item->cols / item->column_parts);
        *start = tile_row_target(item, first_row, tile_row) + part * item->segment_bytes;
        *end = tile_row_target(item, last_row, tile_row) + tile_row + part * item->segment_bytes;
        return;
    }
    case PACK_VECTORS:
        *start = item->target + first_row * item->segment_bytes;
        *end = item->target + last_row * item->segment_bytes + item->cols * sizeof(float);
        return;
    case PACK_TRANSPOSED:
        *start = item->target;
        *end = item->target + tile_matrix_bytes(TENSOR_F32, item->cols, item->rows);
        return;
    }
}

static void pack_matrix(const struct pack_item *item, uint32_t first_row, uint32_t n_rows,
                        const uint8_t *rows, uint8_t *memory)
{
    const struct tensor_type_info *type = tensor_type_info(item->tensor->type);
    uint32_t cols = item->cols / item->column_parts;
    size_t tile_row = tile_row_bytes(item->tensor->type, cols);
    uint64_t part_bytes = cols / type->block_values * type->block_bytes;
    for (uint32_t done = 0; done < n_rows; done += TILE_ROWS) {
        uint32_t row = first_row + done;
        uint32_t n = n_rows - done < TILE_ROWS ? n_rows - done : TILE_ROWS;
        uint64_t target = tile_row_target(item, row, tile_row);
        for (uint32_t part = 0; part < item->column_parts; part++) {
            uint8_t *tiles = memory + target + part * item->segment_bytes;
            tile_pack(item->tensor->type, cols, n,
                      rows + done * item->row_bytes + part * part_bytes, item->row_bytes, tiles);
            if (tile_has_factors(item->tensor->type))
                tile_set_factor(item->tensor->type, cols, item->factor, tiles);
        }
    }
}

static void pack_vectors(const struct pack_item *item, const uint8_t *rows, uint8_t *memory)
{
    for (uint32_t row = 0; row < item->rows; row++)
        quant_dequantize(item->tensor->type, rows + row * item->row_bytes,
                         (float *)(memory + item->target + row * item->segment_bytes), item->cols);
}

/* Transposes the matrix of the file, as float32: a quantised block lies along what becomes a
 * column.
 */
static enum error_code pack_transposed(const struct pack_item *item, const uint8_t *rows,
                                       uint8_t *memory, struct error *e)
{
    size_t values = (size_t)item->rows * item->cols;
    float *plain = malloc(2 * values * sizeof *plain), *turned = plain + values;
    if (!plain)
        return error_set(e, ERROR_MEMORY, "no memory to transpose tensor '%s'", item->tensor->name);
    for (uint32_t row = 0; row < item->rows; row++) {
        float *line = plain + (size_t)row * item->cols;
        quant_dequantize(item->tensor->type, rows + row * item->row_bytes, line, item->cols);
        for (uint32_t col = 0; col < item->cols; col++)
            turned[(size_t)col * item->rows + row] = line[col] * item->factor;
    }
    size_t tile_row = tile_row_bytes(TENSOR_F32, item->rows);
    for (uint32_t done = 0; done < item->cols; done += TILE_ROWS) {
        uint32_t n = item->cols - done < TILE_ROWS ? item->cols - done : TILE_ROWS;
        tile_pack(TENSOR_F32, item->rows, n, (const uint8_t *)(turned + (size_t)done * item->rows),
                  item->rows * sizeof(float), memory + item->target + done / TILE_ROWS * tile_row);
    }
    free(plain);
    return ERROR_OK;
}

/* A weight that is not finite would make every answer empty or senseless. */
static enum error_code check_finite(const struct pack_item *item, uint32_t first_row,
                                    uint32_t n_rows, const uint8_t *rows, struct error *e)
{
    const struct tensor_type_info *type = tensor_type_info(item->tensor->type);
    size_t n_blocks = n_rows * item->row_bytes / type->block_bytes;
    size_t block = quant_find_not_finite(item->tensor->type, rows, n_blocks);
    if (block == n_blocks)
        return ERROR_OK;
    return error_set(e, ERROR_FORMAT,
                     "tensor '%s' has a weight that is not a finite number, in the block at byte "
                     "%" PRIu64 " of the file: the file is damaged, or was converted wrongly",
                     item->tensor->name,
                     item->source + first_row * item->row_bytes + block * type->block_bytes);
}

enum error_code pack_item_rows(const struct pack_item *item, uint32_t first_row, uint32_t n_rows,
                               const uint8_t *rows, uint8_t *memory, struct error *e)
{
    enum error_code code = check_finite(item, first_row, n_rows, rows, e);
    if (code)
        return code;
    switch (item->form) {
    case PACK_MATRIX:
        pack_matrix(item, first_row, n_rows, rows, memory);
        return ERROR_OK;
    case PACK_VECTORS:
        pack_vectors(item, rows, memory);
        return ERROR_OK;
    case PACK_TRANSPOSED:
        return pack_transposed(item, rows, memory, e);
    }
    return error_set(e, ERROR_INTERNAL, "no way to pack tensor '%s'", item->tensor->name);
}
