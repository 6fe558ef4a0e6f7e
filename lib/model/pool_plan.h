/* The plan of a pool: which tensors of the model file go where. Made from the file alone, before anything
 * is allocated, so memd can say what it needs and `moed inspect` can show it. */
#ifndef MOED_MODEL_POOL_PLAN_H
#define MOED_MODEL_POOL_PLAN_H

#include "model/pool_map.h"

#include <stddef.h>

/* Where a dense tensor's plane, or an expert's matrix, comes from: rows of a tensor of the file, those of plane
 * (expert) i beginning at row first_row + i * plane_rows. A vector begins at value first_row. */
struct pool_source {
    const struct gguf_tensor *tensor;
    uint32_t first_row, plane_rows;
    bool transposed; /* the plane's columns are the file's rows; it becomes float32 */
};

/* The experts of a layer. A bias is [n_experts][rows of its matrix] in the file, or its tensor is NULL. */
struct pool_expert_sources {
    struct pool_source gate, up, down;
    struct pool_source gate_bias, up_bias;
};

struct pool_plan {
    struct pool_header header; /* complete but for the generation */
    struct pool_tensor *tensors;
    struct pool_source *sources;         /* [n_tensors] */
    struct pool_slabs *slabs;            /* [n_layers] */
    struct pool_expert_sources *experts; /* [n_layers] */
};

/* Every tensor that the architecture needs must be there in the right shape and a type that moed computes
 * with, and no other that would change the answers: an error names it. g must outlive the plan. */
enum error_code pool_plan_new(const struct gguf *g, struct pool_plan *out, struct error *e);
/* An expert is cut so that a segment has at most segment_bytes, where its width allows (pool_plan_new:
 * POOL_SEGMENT_BYTES). */
#define POOL_SEGMENT_BYTES (2u << 20)
enum error_code pool_plan_new_cut(const struct gguf *g, uint64_t segment_bytes,
                                  struct pool_plan *out, struct error *e);
void pool_plan_free(struct pool_plan *p);

/* Bytes of weights that one token reads: of the dense ones, of an embedding that is not the output's matrix too but a row; and of
 * experts. */
uint64_t pool_plan_dense_token_bytes(const struct pool_plan *p);
uint64_t pool_plan_expert_token_bytes(const struct pool_plan *p);

/* The pool as it will be, for who reckons with it before it is there: all but the weights and the metadata (base is NULL).
 * Borrows the plan. */
struct pool_map pool_plan_map(const struct pool_plan *p);

/* The pool is to hold the dense weights only; slabs lie elsewhere (header.tiered). */
void pool_plan_keep_dense(struct pool_plan *p);

/* Put header, tables and metadata at the pool's start; the weights are the loader's. */
void pool_plan_write(const struct pool_plan *p, const struct gguf *g, uint64_t generation,
                     uint8_t *pool);

#endif
