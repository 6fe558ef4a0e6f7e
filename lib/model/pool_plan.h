/* The plan of a pool: the place of each tensor of the model file. It depends on the file only and
 * exists before anything is allocated. memd reports its memory need from it; `moed inspect` shows
 * it. */
#ifndef MOED_MODEL_POOL_PLAN_H
#define MOED_MODEL_POOL_PLAN_H

#include "model/pool_map.h"

#include <stddef.h>

/* The source of a dense tensor's planes or of a layer's expert matrices: rows of a tensor of the
 * file. Plane (expert) i begins at row first_row + i * plane_rows. A vector begins at value
 * first_row. */
struct pool_source {
    const struct gguf_tensor *tensor;
    uint32_t first_row, plane_rows;
    bool transposed; /* the plane's columns are the file's rows; it becomes float32 */
    /* Of NVFP4 matrices, the file's NAME.scale: one factor, or one a plane; NULL: none. The first
     * one is pool_plan.factors[first_factor]. */
    const struct gguf_tensor *factors;
    uint32_t first_factor;
};

/* The experts of a layer. A bias is [n_experts][rows of its matrix] in the file. NULL tensor: no
 * gate, no bias. */
struct pool_expert_sources {
    struct pool_source gate, up, down;
    struct pool_source gate_bias, up_bias;
};

struct pool_plan {
    struct pool_header header; /* complete except for the generation */
    struct pool_tensor *tensors;
    struct pool_source *sources;         /* [n_tensors] */
    struct pool_slabs *slabs;            /* [n_layers] */
    struct pool_expert_sources *experts; /* [n_layers] */
    void *memory;                        /* of the four arrays */
    float *factors;                      /* [n_factors]; NaN before pool_plan_read_factors */
    uint32_t n_factors;
};

/* The file must have every tensor that the architecture needs, in the right shape and in a type
 * that moed computes with. It must not have another tensor that would change the answers. The error
 * names the tensor. g must outlive the plan. */
enum error_code pool_plan_new(const struct gguf *g, struct pool_plan *out, struct error *e);
/* The same for segments of another size: cuts experts so that a segment has at most segment_bytes,
 * if their width allows. pool_plan_new takes POOL_SEGMENT_BYTES. */
#define POOL_SEGMENT_BYTES (2u << 20)
enum error_code pool_plan_new_cut(const struct gguf *g, uint64_t segment_bytes,
                                  struct pool_plan *out, struct error *e);
/* The same with hyper-parameters that model_params_read has read, or model_params_check checked:
 * reads no key of g. */
enum error_code pool_plan_new_from(const struct gguf *g, const struct model_params *params,
                                   uint64_t segment_bytes, struct pool_plan *out, struct error *e);
void pool_plan_free(struct pool_plan *p);

/* Reads the matrices' factors, which packing needs. ERROR_FORMAT: one is infinite or not a number.
 */
enum error_code pool_plan_read_factors(struct pool_plan *plan, const struct gguf *g,
                                       struct error *e);
/* The factor of one plane (expert); 1 where the file has none. */
float pool_source_factor(const struct pool_plan *plan, const struct pool_source *source,
                         uint32_t plane);

/* Bytes of weights that one token reads, dense and of experts. An embedding matrix that is not also
 * the output's counts as one row. */
uint64_t pool_plan_dense_token_bytes(const struct pool_plan *p);
uint64_t pool_plan_expert_token_bytes(const struct pool_plan *p);

/* A map of the planned pool, for computations before the pool exists: without the weights and the
 * metadata (base is NULL). Borrows the plan. */
struct pool_map pool_plan_map(const struct pool_plan *p);

/* Plans a pool of dense weights only: the slabs lie in the host tier (header.tiered). */
void pool_plan_keep_dense(struct pool_plan *p);

/* Writes header, tables and metadata to the pool's start. The loader writes the weights. */
enum error_code pool_plan_write(const struct pool_plan *p, const struct gguf *g,
                                uint64_t generation, uint8_t *pool, struct error *e);

#endif
