/* A plan under construction, private to lib/model. The first error stops it.
 *
 *     pool_plan.c     makes a plan: tensors, check, offsets
 *      -> plan_tensors.c  lists the tensors of an architecture
 *      -> plan_factors.c  finds the factors of matrices
 *      -> plan_check.c    refuses files with tensors that the plan does not use
 *      -> planner.c       checks a tensor of the file and adds it to the plan */
#ifndef MOED_MODEL_PLANNER_H
#define MOED_MODEL_PLANNER_H

#include "model/pool_plan.h"

enum { TENSOR_NAME_BYTES = 64 };

struct planner {
    const struct gguf *g;
    const struct model_params *params;
    struct pool_plan *plan;
    struct error *e;
    enum error_code failed;
    bool *used;             /* [the file's tensors]: the plan uses it (planner_require) */
    uint32_t capacity;      /* of plan->tensors */
    uint64_t offset;        /* next free byte of the pool */
    uint32_t block;         /* whose tensors are added ("blk.7") */
    uint64_t segment_bytes; /* the limit, if the experts' width allows */
};

/* Finds the tensor and checks it: `planes` matrices of rows x cols in a type that moed computes
 * with. NULL after an error. */
const struct gguf_tensor *planner_require(struct planner *p, const char *name, uint64_t rows,
                                          uint64_t cols, uint64_t planes);
/* The same for `vectors` consecutive vectors of a float type. */
const struct gguf_tensor *planner_require_vectors(struct planner *p, const char *name,
                                                  uint64_t values, uint64_t vectors);
/* Adds a tensor of the file: `planes` matrices, one per head or expert. */
void planner_add_matrix(struct planner *p, const char *name, uint32_t rows, uint32_t cols,
                        uint32_t planes);
/* Adds matrices, or a vector, that are a part of a tensor, under a name of their own. */
void planner_add_part(struct planner *p, const char *name, const struct pool_source *source,
                      uint32_t rows, uint32_t cols, uint32_t planes);
void planner_add_vector_part(struct planner *p, const char *name, const struct pool_source *source,
                             uint32_t values);
/* Adds `vectors` vectors of `values` each; float32 [vectors][values] in the pool. optional: the
 * file may lack the tensor. */
void planner_add_vectors(struct planner *p, const char *name, uint32_t values, uint32_t vectors,
                         bool optional);
bool planner_has(const struct planner *p, const char *name);

/* plan_tensors.c: adds every tensor of the model. */
void plan_model(struct planner *p);
/* plan_factors.c, after plan_model: sets the factors of the plan's sources. */
void plan_factors(struct planner *p);
/* plan_check.c, at last: ERROR_UNSUPPORTED for a tensor that the plan does not use and
 * that would change the answers: a bias, norm or scale that the architecture's row does not have.
 */
void plan_check_unused(struct planner *p);

#endif
