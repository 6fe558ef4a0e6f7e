/* Lists a plan's tensors from its checked options. */
#ifndef MOED_MKMODEL_TENSORS_H
#define MOED_MKMODEL_TENSORS_H

#include "mkmodel/plan.h"

/* The heads of a layer. */
struct mkmodel_heads {
    bool windowed; /* false also where neither keys nor tensors say so */
    uint32_t heads, kv_heads, head_dim, value_dim;
};
struct mkmodel_heads mkmodel_heads_of(const struct plan *p, uint32_t layer);

/* Appends every tensor of the model and sums their bytes. */
enum error_code tensors_list(struct plan *p, struct error *e);

#endif
