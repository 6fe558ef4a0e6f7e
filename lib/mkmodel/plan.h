/* The plan of a model: every tensor with its name, shape, type and distribution. */
#ifndef MOED_MKMODEL_PLAN_H
#define MOED_MKMODEL_PLAN_H

#include "base/error.h"
#include "gguf/gguf.h"
#include "mkmodel/arch.h"
#include "mkmodel/mkmodel.h"

#include <stdbool.h>
#include <stdint.h>

struct planned_tensor {
    char name[GGUF_NAME_BYTES];
    enum tensor_type type;
    uint32_t n_dims;
    uint64_t ne[3]; /* absent dimensions are 1 */
    uint64_t rows, row_bytes, bytes;
    float mean, deviation;
    /* Not 0: the file multiplies what matrix i gives by mkmodel_factor(factor, i), and the values
     * are divided by it. scale: this tensor has these factors. */
    float factor;
    bool scale;
};

/* Matrices of a tensor differ. */
static inline float mkmodel_factor(float factor, uint64_t matrix)
{
    return factor * (1 + (float)(matrix % 4) / 4);
}

enum { MKMODEL_MOST_LAYERS = 1000 };
/* Of models that choose positions: heads of twice the rotated values. */
enum { INDEXER_HEADS = 2, INDEXER_TOP_K = 2048 };
#define MKMODEL_LOGIT_SCALE 0.25f

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

/* The heads of linear attention: as in the published models, two value heads and one key head for
 * each head of attention, half as wide. */
struct mkmodel_delta {
    uint32_t k_heads, v_heads, head_dim;
};
static inline struct mkmodel_delta mkmodel_delta_of(const struct mkmodel_options *o)
{
    return (struct mkmodel_delta){o->heads, 2 * o->heads, o->head_dim / 2};
}

/* Where layers differ, of so many the last has attention, and the others have none. */
static inline uint32_t mkmodel_attention_interval(const struct mkmodel_options *o)
{
    return o->layers < 4 ? o->layers : 4;
}

/* Mamba2's heads and groups: as in the published models, two heads for each head of attention, half
 * as wide, and states as wide as that. */
struct mkmodel_mamba2 {
    uint32_t groups, heads, head_dim, states;
};
static inline struct mkmodel_mamba2 mkmodel_mamba2_of(const struct mkmodel_options *o)
{
    return (struct mkmodel_mamba2){o->kv_heads, 2 * o->heads, o->head_dim / 2, o->head_dim};
}

static inline bool mkmodel_attends(const struct plan *p, uint32_t layer)
{
    return !(p->arch->delta || p->arch->convolutions || p->arch->mamba2) ||
           (layer + 1) % mkmodel_attention_interval(&p->options) == 0;
}

/* The first of a layer's blocks, and of the file's end where there is no such layer: the layer
 * itself, unless a block is a part of a layer. */
static inline uint32_t mkmodel_first_block(const struct plan *p, uint32_t layer)
{
    if (!p->arch->mamba2)
        return layer;
    return 2 * layer + layer / mkmodel_attention_interval(&p->options);
}

/* Checks the options (ERROR_USAGE names the wrong one); tensors_list (tensors.h) adds the tensors.
 * Initialises *p, also where it fails. */
enum error_code plan_init(struct plan *p, const struct mkmodel_options *o, struct error *e);
void plan_fini(struct plan *p);

#endif
