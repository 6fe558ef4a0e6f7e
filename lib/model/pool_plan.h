/* The plan of a pool: which tensors of the model file go where. Made from the file alone, before anything
 * is allocated, so memd can say what it needs and `moed inspect` can show it. */
#ifndef MOED_MODEL_POOL_PLAN_H
#define MOED_MODEL_POOL_PLAN_H

#include "model/pool_map.h"

#include <stddef.h>

struct pool_plan {
    struct pool_header header;  /* complete but for the generation */
    struct pool_tensor *tensors;
    const struct gguf_tensor **sources; /* [n_tensors], of the file */
    struct pool_slabs *slabs;           /* [n_layers] */
    const struct gguf_tensor **gate, **up, **down; /* [n_layers] */
};

/* Every tensor that the architecture needs must be there in the right shape and a type that moed computes
 * with (an error names it); others in the file are ignored. g must outlive the plan. */
enum error_code pool_plan_new(const struct gguf *g, struct pool_plan *out, struct error *e);
void pool_plan_free(struct pool_plan *p);

/* Put header, tables and metadata at the pool's start; the weights are the loader's. */
void pool_plan_write(const struct pool_plan *p, const struct gguf *g, uint64_t generation,
                     uint8_t *pool);

#endif
