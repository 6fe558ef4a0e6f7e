/* Packing: from rows of the model file to their place in memory. The load of the whole pool uses
 * it, and the host tier, which reads one expert at a time. */
#ifndef MOED_MEMD_LOAD_PACK_H
#define MOED_MEMD_LOAD_PACK_H

#include "base/error.h"
#include "model/pool_plan.h"

/* A matrix of the file, and how segments cut it: gate and up by rows, down by columns. Its rows
 * stand in the file one after the other. */
struct pack_item {
    const struct gguf_tensor *tensor;
    uint64_t source; /* offset of the first row in the tensor's file */
    uint64_t row_bytes;
    uint32_t rows, cols;
    uint32_t rows_a_segment; /* = rows: not cut by rows */
    uint32_t column_parts;   /* 1: not cut by columns */
    uint64_t target;         /* offset in memory of the first segment's part */
    uint64_t segment_bytes;  /* from one segment's part to the next's */
    float factor;            /* of every value of the matrix (kernels/tile.h) */
    enum pack_form {
        PACK_MATRIX,     /* packed into tiles */
        PACK_VECTORS,    /* each row as float32, one a segment */
        PACK_TRANSPOSED, /* cols rows of float32 tiles, each of a column */
    } form;
};

/* A dense tensor of the plan, whose factors were read: an item for each plane. */
void pack_dense_items(const struct pool_plan *plan, uint32_t tensor, struct pack_item *items);

/* The items of an expert whose slab begins at offset `slab` of memory. Returns how many. */
enum { PACK_EXPERT_ITEMS = 5 };
uint32_t pack_expert_items(const struct pool_plan *plan, uint32_t layer, uint32_t expert,
                           uint64_t slab, struct pack_item items[PACK_EXPERT_ITEMS]);

/* Packs rows [first_row, first_row + n_rows) of the item. rows: as in the file. first_row is a
 * multiple of TILE_ROWS, and so is n_rows unless these are the last. Forms other than PACK_MATRIX
 * take all rows at once. ERROR_FORMAT: a weight is infinite or not a number; the message names the
 * tensor and the byte of the file. ERROR_MEMORY: only PACK_TRANSPOSED. */
enum error_code pack_item_rows(const struct pack_item *item, uint32_t first_row, uint32_t n_rows,
                               const uint8_t *rows, uint8_t *memory, struct error *e);

/* The range [*start, *end) of memory in which pack_item_rows writes these rows of one column part.
 * Bytes of other items may lie in it. */
void pack_item_target(const struct pack_item *item, uint32_t first_row, uint32_t n_rows,
                      uint32_t part, uint64_t *start, uint64_t *end);

#endif
