/* A read-only view of trained predictors, a file of `moed train` for one model. docs/training.md
 * describes the command. Pure: no I/O, no memory of its own; the caller owns the bytes, which must
 * outlive the view.
 *
 * The file is untrusted input: trained_view checks all that the functions below rely on, so that a
 * damaged file cannot make them read outside of it. Numbers may have any value; predictors treat
 * NaN as "not probable".
 *
 * Layout, version 1. Little-endian; every offset is from the start of the file and a multiple of
 * TRAINED_ALIGN; 0: absent.
 *
 *     struct trained_header
 *     struct trained_layer [n_layers]    at header.layers
 *     struct trained_group [n_groups]    at header.groups
 *     uint32_t [n_layers][n_experts]     at header.activations: tokens that activated the expert
 *     bodies, in any order:
 *       residual  float [d_model]
 *       MTP       struct trained_network at header.mtp, which has a network of its own; d_model
 *                 embedding values and d_model gate inputs in, experts of all layers out
 *       PCA       float bias [n_components], then bf16 basis [d_model][n_components]
 *       network   float b_in [n_hidden];
 *                 with a block b_first, b_second, b_gate [n_hidden] each;
 *                 b_out [n_out]: n_experts, of the MTP [layers with experts][n_experts];
 *                 then bf16 w_in [n_in][n_hidden];
 *                 with a block w_first, w_second [n_hidden][n_hidden], w_gate [n_gated][n_hidden];
 *                 w_out [n_hidden][n_out]
 *
 * bf16 is the upper half of a float. A matrix has a row for each input, so that the numbers that
 * one input multiplies lie side by side, and the row of an input that is 0 need not be read. */
#ifndef MOED_SCHED_PREDICT_TRAINED_H
#define MOED_SCHED_PREDICT_TRAINED_H

#include "sched/predict/predict.h"

#include <stddef.h>

#define TRAINED_MAGIC   "moedlern"
#define TRAINED_VERSION 1u
enum { TRAINED_ALIGN = 64, TRAINED_NAME = 96 };
enum { TRAINED_MAX_LAYERS = 1024, TRAINED_MAX_EXPERTS = 4096, TRAINED_MAX_WIDTH = 1 << 16 };

struct trained_header {
    char magic[8];
    uint32_t version;
    uint32_t n_layers, first_layer, n_experts, n_used, d_model;
    uint32_t n_groups;
    uint32_t stride;   /* an MLP at layer l predicts layer l + stride; 0: no MLP */
    uint64_t n_tokens; /* that it was trained on */
    uint64_t bytes;    /* of the file */
    uint64_t routers;  /* trained_hash of the model's router matrices, in order; 0: not known */
    uint64_t checksum; /* trained_hash of all bytes after the header */
    uint64_t layers, groups;
    char model[TRAINED_NAME]; /* its name, ended by a 0 */
    uint64_t activations;     /* of the tokens that it was trained on */
    uint64_t mtp;             /* 0: none */
    uint64_t reserved;
};
_Static_assert(sizeof(struct trained_header) == 208, "file layout");

enum trained_activation { TRAINED_RELU, TRAINED_GELU };

struct trained_network {
    uint32_t n_in, n_hidden;
    uint32_t n_gated;    /* the first inputs, which gate the residual block; 0: no block */
    uint32_t activation; /* enum trained_activation */
    uint64_t offset;     /* 0: no network */
};

/* Networks belong to the layer that they predict; a residual vector leads from its layer to the
 * next. */
struct trained_layer {
    uint64_t residual;
    struct trained_network mlp, llapor;
    uint32_t group, reserved; /* of llapor */
};
_Static_assert(sizeof(struct trained_layer) == 64, "file layout");

struct trained_group {
    uint32_t n_components, reserved;
    uint64_t offset;
};
_Static_assert(sizeof(struct trained_group) == 16, "file layout");

/* ---- The view ---- */

struct trained_predictors {
    struct trained_header header; /* a copy */
    const unsigned char *bytes;
    const struct trained_layer *layers;
    const struct trained_group *groups;
};

/* LLaPor reads the layer this far before the one that it predicts. */
enum { LLAPOR_DISTANCE = 2 };

enum { TRAINED_WHY = 160 };
/* bytes: aligned to at least 16. False: why holds one line. */
bool trained_view(const void *bytes, size_t n, struct trained_predictors *out,
                  char why[TRAINED_WHY]);
/* Reads the whole file. False: the checksum differs. */
bool trained_is_intact(const struct trained_predictors *l);

/* The model that is served. */
struct trained_model {
    const char *name;
    struct predict_shape shape;
    uint64_t routers; /* 0: not known */
};
/* False: trained for another model; why holds one line. The name counts only where the routers of
 * either are not known: the same ones are the same model, whatever its name. */
bool trained_fits(const struct trained_predictors *l, const struct trained_model *model,
                  char why[TRAINED_WHY]);
/* Compares the shape only. */
bool trained_fits_shape(const struct trained_predictors *l, const struct predict_shape *shape);

/* Continues a hash over n more bytes, 8 at a time, the last ones filled up with 0. hash: 0 for the
 * first part. */
uint64_t trained_hash(uint64_t hash, const void *bytes, size_t n);

/* ---- The parts of a layer; layer < n_layers ---- */

/* A matrix product with a bias: y = bias + x w. */
struct trained_affine {
    uint32_t n_in, n_out;
    const float *bias; /* [n_out] */
    const uint16_t *w; /* [n_in][n_out], bf16 */
};

/* A network: u = act(in x); with a block u += sigmoid(gate x[0, n_gated)) * act(second act(first
 * u)); out u. */
struct trained_net {
    enum trained_activation activation;
    bool has_block;
    struct trained_affine in, first, second, gate, out;
};

/* The profile: tokens that activated each expert, [n_layers][n_experts]; NULL: none. */
const uint32_t *trained_activations(const struct trained_predictors *l);
const float *trained_residual(const struct trained_predictors *l, uint32_t layer); /* NULL: none */
bool trained_mlp(const struct trained_predictors *l, uint32_t layer, struct trained_net *out);
/* pca: compresses the hidden state; its components are the network's first inputs. */
bool trained_llapor(const struct trained_predictors *l, uint32_t layer, struct trained_net *out,
                    struct trained_affine *pca);
/* predict_mtp.c describes input and output. */
bool trained_mtp(const struct trained_predictors *l, struct trained_net *out);
bool trained_has(const struct trained_predictors *l, enum sched_predictor kind); /* for any layer */

#endif
