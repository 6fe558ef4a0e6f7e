/* What was trained for one model, as `moed train` wrote it: a read-only view of a file's bytes. docs/training.md says how it is
 * trained. Pure: no I/O, no memory of its own; the bytes stay the caller's and must outlive the view.
 *
 * A file is input: learned_view checks all that the functions below rely on, so that no damaged file can make them read outside
 * it. Numbers may still be any: who predicts from them takes one that is no number for "not probable".
 *
 * Layout, version 1. Little-endian; every offset is from the file's begin and a multiple of LEARNED_ALIGN; 0: it has none.
 *
 *     struct learned_header
 *     struct learned_layer [n_layers]    at header.layers
 *     struct learned_group [n_groups]    at header.groups
 *     uint32_t [n_layers][n_experts]     at header.activations: tokens that activated the expert
 *     bodies, in any order:
 *       residual  float [d_model]
 *       PCA       float bias [n_components], then bf16 basis [d_model][n_components]
 *       network   float b_in [n_hidden]; with a block b_first, b_second, b_gate [n_hidden] each; b_out [n_experts]; then
 *                 bf16 w_in [n_in][n_hidden]; with a block w_first, w_second [n_hidden][n_hidden], w_gate
 *                 [n_gated][n_hidden]; w_out [n_hidden][n_experts]
 *
 * bf16 is the upper half of a float. A matrix has a row for each input, so that what is multiplied lies side by side and a
 * row whose input is 0 need not be read.
 */
#ifndef MOED_SCHED_LEARNED_H
#define MOED_SCHED_LEARNED_H

#include "sched/predict.h"

#include <stddef.h>

#define LEARNED_MAGIC   "moedlern"
#define LEARNED_VERSION 1u
enum { LEARNED_ALIGN = 64, LEARNED_NAME = 96 };
enum { LEARNED_MAX_LAYERS = 1024, LEARNED_MAX_EXPERTS = 4096, LEARNED_MAX_WIDTH = 1 << 16 };

struct learned_header {
    char magic[8];
    uint32_t version;
    uint32_t n_layers, first_layer, n_experts, n_used, d_model;
    uint32_t n_groups;
    uint32_t stride;   /* an MLP at layer l predicts layer l + stride; 0: there is none */
    uint64_t n_tokens; /* that it was trained on */
    uint64_t bytes;    /* of the file */
    uint64_t routers;  /* learned_hash of the model's router matrices, in order; 0: not known */
    uint64_t checksum; /* learned_hash of what follows the header */
    uint64_t layers, groups;
    char model[LEARNED_NAME]; /* its name, closed by a 0 */
    uint64_t activations; /* of the tokens that it was trained on */
    uint64_t reserved[2];
};
_Static_assert(sizeof(struct learned_header) == 208, "file layout");

enum learned_activation { LEARNED_RELU, LEARNED_GELU };

struct learned_network {
    uint32_t n_in, n_hidden;
    uint32_t n_gated;    /* inputs, the first ones, that steer the residual block; 0: no block */
    uint32_t activation; /* enum learned_activation */
    uint64_t offset;     /* 0: there is none */
};

/* Networks stand at the layer that they predict; the residual vector at the layer from which it leads to the next. */
struct learned_layer {
    uint64_t residual;
    struct learned_network mlp, llapor;
    uint32_t group, reserved; /* of llapor */
};
_Static_assert(sizeof(struct learned_layer) == 64, "file layout");

struct learned_group {
    uint32_t n_components, reserved;
    uint64_t offset;
};
_Static_assert(sizeof(struct learned_group) == 16, "file layout");

/* ---- The view ---- */

struct sched_learned {
    struct learned_header header; /* a copy */
    const unsigned char *bytes;
    const struct learned_layer *layers;
    const struct learned_group *groups;
};

/* LLaPor reads the layer two before the one that it predicts. */
enum { LLAPOR_AHEAD = 2 };

enum { LEARNED_WHY = 160 };
/* bytes: aligned to 16 at least. False: why holds one line. */
bool learned_view(const void *bytes, size_t n, struct sched_learned *out, char why[LEARNED_WHY]);
/* Reads all of it: false where the checksum is another. */
bool learned_is_intact(const struct sched_learned *l);

/* The model that is served. */
struct learned_model {
    const char *name;
    struct predict_shape shape;
    uint64_t routers; /* 0: not known */
};
/* False: it was trained for another model; why holds one line. */
bool learned_fits(const struct sched_learned *l, const struct learned_model *model,
                  char why[LEARNED_WHY]);
/* Its shape alone. */
bool learned_fits_shape(const struct sched_learned *l, const struct predict_shape *shape);

/* Goes on with a hash over n more bytes; 8 at a time, the last ones filled up with 0. The first time `hash` is 0. */
uint64_t learned_hash(uint64_t hash, const void *bytes, size_t n);

/* ---- What there is of a layer; layer < n_layers ---- */

/* A matrix product with a bias: y = bias + x w. */
struct learned_affine {
    uint32_t n_in, n_out;
    const float *bias; /* [n_out] */
    const uint16_t *w; /* [n_in][n_out], bf16 */
};

/* A network: u = act(in x); with a block u += sigmoid(gate x[0, n_gated)) * act(second act(first u)); out u. */
struct learned_net {
    enum learned_activation activation;
    bool has_block;
    struct learned_affine in, first, second, gate, out;
};

/* A profile: of each layer and expert the tokens that activated it, [n_layers][n_experts]; NULL: none. */
const uint32_t *learned_activations(const struct sched_learned *l);
const float *learned_residual(const struct sched_learned *l, uint32_t layer); /* NULL: none */
bool learned_mlp(const struct sched_learned *l, uint32_t layer, struct learned_net *out);
/* pca: of the hidden state; its components are the network's first inputs. */
bool learned_llapor(const struct sched_learned *l, uint32_t layer, struct learned_net *out,
                    struct learned_affine *pca);
bool learned_has(const struct sched_learned *l, enum sched_predictor kind); /* of any layer */

#endif
