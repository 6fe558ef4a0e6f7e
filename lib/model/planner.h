/* What pool_plan.c (where things lie), plan_tensors.c (which tensors an architecture has) and plan_check.c (which it
 * has not) share: a plan while it is made. The first error stops it. */
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
    bool *used;             /* [the file's tensors]: planner_require gave it out */
    uint32_t capacity;      /* of plan->tensors */
    uint64_t offset;        /* next free byte of the pool */
    uint64_t segment_bytes; /* at most, where the width allows */
};

/* The tensor, checked: `planes` matrices of rows x cols in a type that moed computes with. NULL after an error. */
const struct gguf_tensor *planner_require(struct planner *p, const char *name, uint64_t rows,
                                          uint64_t cols, uint64_t planes);
/* The same for vectors, one after the other, of a float type. */
const struct gguf_tensor *planner_require_vectors(struct planner *p, const char *name,
                                                  uint64_t values, uint64_t vectors);
/* A matrix that is a tensor of the file; planes of them (a head's, an expert's). */
void planner_add_matrix(struct planner *p, const char *name, uint32_t rows, uint32_t cols,
                        uint32_t planes);
/* A matrix that is a part of a tensor, or a vector that is a part of one, under a name of its own. */
void planner_add_part(struct planner *p, const char *name, const struct pool_source *source,
                      uint32_t rows, uint32_t cols, uint32_t planes);
void planner_add_vector_part(struct planner *p, const char *name, const struct pool_source *source,
                             uint32_t values);
/* vectors of `values` each, as float32 (pool form [vectors][values]). */
void planner_add_vectors(struct planner *p, const char *name, uint32_t values, uint32_t vectors,
                         bool optional);
bool planner_has(const struct planner *p, const char *name);

/* plan_tensors.c: every tensor of the model. */
void plan_model(struct planner *p);
/* plan_check.c: after it. ERROR_UNSUPPORTED for a tensor that the plan does not use and that would change the
 * answers: a bias, a norm, a scale that the architecture's row does not have. */
void plan_check_unused(struct planner *p);

#endif
