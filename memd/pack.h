/* From rows of the model file to where they lie in memory: what a matrix or vector of the file becomes. Used by the load of
 * the whole pool and by the host tier, which reads one expert at a time. */
#ifndef MOED_MEMD_PACK_H
#define MOED_MEMD_PACK_H

#include "base/error.h"
#include "model/pool_plan.h"

/* A matrix of the file, and how it is cut over segments: gate and up by rows, down by columns. Its rows stand in the file one
 * after the other. */
struct pack_item {
    const struct gguf_tensor *tensor;
    uint64_t source; /* offset of the first row in the tensor's file */
    uint64_t row_bytes;
    uint32_t rows, cols;
    uint32_t rows_a_segment; /* rows where it is not cut by rows */
    uint32_t column_parts;   /* 1 where it is not cut by columns */
    uint64_t target;         /* offset in memory of the first segment's part */
    uint64_t segment_bytes;  /* from one segment's part to the next's */
    enum pack_form {
        PACK_MATRIX,     /* packed into tiles */
        PACK_VECTORS,    /* each row as float32, one a segment */
        PACK_TRANSPOSED, /* cols rows of float32 tiles, each of a column */
    } form;
};

/* The planes of a dense tensor of the plan, an item each. */
void pack_dense_items(const struct pool_plan *plan, uint32_t tensor, struct pack_item *items);

/* What an expert is made of, its slab beginning at offset `slab` of memory. Returns how many. */
enum { PACK_EXPERT_ITEMS = 5 };
uint32_t pack_expert_items(const struct pool_plan *plan, uint32_t layer, uint32_t expert,
                           uint64_t slab, struct pack_item items[PACK_EXPERT_ITEMS]);

/* rows: n_rows of the item's from first_row on, as in the file; first_row is a multiple of TILE_ROWS, and n_rows is unless
 * they are the last. Other forms than PACK_MATRIX: all rows at once. ERROR_MEMORY for PACK_TRANSPOSED alone. */
enum error_code pack_rows(const struct pack_item *item, uint32_t first_row, uint32_t n_rows,
                          const uint8_t *rows, uint8_t *memory, struct error *e);

/* The bytes of memory [*start, *end) that pack_rows writes into for one of the item's column parts, with such rows. Others' may
 * lie between them. */
void pack_rows_target(const struct pack_item *item, uint32_t first_row, uint32_t n_rows,
                      uint32_t part, uint64_t *start, uint64_t *end);

#endif
