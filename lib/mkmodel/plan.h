/* The plan of a model: every tensor with its name, shape, type and distribution. */
#ifndef MOED_MKMODEL_PLAN_H
#define MOED_MKMODEL_PLAN_H

#include "base/error.h"
#include "gguf/gguf.h"
#include "mkmodel/arch.h"
#include "mkmodel/mkmodel.h"

#include <stdint.h>

struct planned_tensor {
    char name[GGUF_NAME_BYTES];
    enum tensor_type type;
    uint32_t n_dims;
    uint64_t ne[3]; /* absent dimensions are 1 */
    uint64_t rows, row_bytes, bytes;
    float mean, deviation;
};

/* Of models that choose positions: heads of twice the rotated values. */
enum { INDEXER_HEADS = 2, INDEXER_TOP_K = 2048 };

struct plan {
    struct mkmodel_options options; /* with zeros replaced by their defaults */
    const struct mkmodel_arch *arch;
    enum tensor_type type; /* of most matrices */
    bool mixed;            /* Q4_K_M and Q5_K_M: some matrices in Q6_K */
    bool sigmoid;          /* the gate: sigmoid with a selection bias; else softmax */
    uint32_t file_type;    /* general.file_type */
    struct planned_tensor *tensors;
    uint64_t count, capacity;
    uint64_t bytes; /* of all tensors */
    uint64_t other_type_count;
    const struct planned_tensor *other_type_example; /* or NULL */
};

/* Checks the options (ERROR_USAGE names the wrong one) and lists the tensors. Initialises *p. */
enum error_code plan_init(struct plan *p, const struct mkmodel_options *o, struct error *e);
void plan_fini(struct plan *p);

#endif
