/* A view of trained predictors; see trained.h. */
#include "sched/predict/trained.h"

#include "base/utf8.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static bool refuse(char why[TRAINED_WHY], const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static bool refuse(char why[TRAINED_WHY], const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(why, TRAINED_WHY, format, args);
    va_end(args);
    return false;
}

uint64_t trained_hash(uint64_t hash, const void *bytes, size_t n)
{
    const unsigned char *p = bytes;
    for (size_t i = 0; i < n; i += 8) {
        uint64_t word = 0;
        memcpy(&word, p + i, n - i < 8 ? n - i : 8);
        hash = (hash ^ word) * UINT64_C(0x9e3779b97f4a7c15) + 1;
        hash ^= hash >> 32;
    }
    return hash;
}

/* ---- Places in the file ---- */

/* True if `bytes` at an aligned offset behind the header lie in the file. Sizes are far below 2^63:
 * counts are limited before. */
static bool lies_inside(const struct trained_predictors *l, uint64_t offset, uint64_t bytes)
{
    return offset % TRAINED_ALIGN == 0 && offset >= sizeof l->header && offset <= l->header.bytes &&
           bytes <= l->header.bytes - offset;
}

static uint64_t network_bytes(const struct trained_network *n, uint64_t n_out)
{
    uint64_t in = n->n_in, hidden = n->n_hidden, gated = n->n_gated;
    uint64_t floats = hidden + n_out, halves = in * hidden + hidden * n_out;
    if (gated) {
        floats += 3 * hidden;
        halves += 2 * hidden * hidden + gated * hidden;
    }
    return 4 * floats + 2 * halves;
}

static uint64_t pca_bytes(uint64_t d_model, uint64_t n_components)
{
    return 4 * n_components + 2 * d_model * n_components;
}

/* ---- Checks ---- */

/* The name is displayed and logged. */
static bool is_readable(const char *name)
{
    for (size_t n; *name; name += n) {
        n = utf8_valid_length(name, strlen(name));
        n = n ? n : 1; /* a long name may be cut within a character */
        if (utf8_is_control(name, n))
            return false;
    }
    return true;
}

static bool check_header(const struct trained_header *h, size_t n, char why[TRAINED_WHY])
{
    if (memcmp(h->magic, TRAINED_MAGIC, sizeof h->magic) != 0)
        return refuse(why, "it is no file of `moed train`");
    if (h->version != TRAINED_VERSION)
        return refuse(why, "it is of version %u, this program knows %u", (unsigned)h->version,
                      TRAINED_VERSION);
    if (h->bytes != n)
        return refuse(why, "it has %llu bytes and should have %llu", (unsigned long long)n,
                      (unsigned long long)h->bytes);
    if (!h->n_layers || h->n_layers > TRAINED_MAX_LAYERS || h->first_layer >= h->n_layers ||
        !h->n_experts || h->n_experts > TRAINED_MAX_EXPERTS || !h->n_used ||
        h->n_used > h->n_experts || !h->d_model || h->d_model > TRAINED_MAX_WIDTH ||
        h->n_groups > h->n_layers || h->stride >= h->n_layers)
        return refuse(why, "it is damaged: its shape is none");
    if (!memchr(h->model, 0, sizeof h->model) || !is_readable(h->model))
        return refuse(why, "it is damaged: its model has no name");
    return true;
}

/* The MTP predicts all layers at once. */
static uint32_t mtp_outputs(const struct trained_predictors *l)
{
    return (l->header.n_layers - l->header.first_layer) * l->header.n_experts;
}

static bool check_network(const struct trained_predictors *l, const struct trained_network *n,
                          uint32_t n_in, uint32_t n_gated, uint32_t n_out)
{
    return n->n_in == n_in && n->n_hidden && n->n_hidden <= TRAINED_MAX_WIDTH &&
           (n->n_gated == 0 || n->n_gated == n_gated) && n->activation <= TRAINED_GELU &&
           lies_inside(l, n->offset, network_bytes(n, n_out));
}

static bool check_residual(const struct trained_predictors *l, uint64_t offset)
{
    if (!lies_inside(l, offset, 4ull * l->header.d_model))
        return false;
    const float *residual = (const float *)(l->bytes + offset);
    for (uint32_t i = 0; i < l->header.d_model; i++)
        if (!isfinite(residual[i]))
            return false;
    return true;
}

static bool check_layer(const struct trained_predictors *l, uint32_t layer)
{
    const struct trained_header *h = &l->header;
    const struct trained_layer *y = &l->layers[layer];
    if (y->residual && (layer < h->first_layer || !check_residual(l, y->residual)))
        return false;
    if (y->mlp.offset && (!h->stride || layer < h->first_layer + h->stride ||
                          !check_network(l, &y->mlp, h->d_model, 0, h->n_experts)))
        return false;
    if (!y->llapor.offset)
        return true;
    if (layer < h->first_layer + LLAPOR_DISTANCE || y->group >= h->n_groups)
        return false;
    uint32_t n = l->groups[y->group].n_components;
    return check_network(l, &y->llapor, n + 2 * h->n_experts, n, h->n_experts);
}

static bool check_groups(const struct trained_predictors *l)
{
    for (uint32_t i = 0; i < l->header.n_groups; i++) {
        const struct trained_group *g = &l->groups[i];
        if (!g->n_components || g->n_components > l->header.d_model ||
            !lies_inside(l, g->offset, pca_bytes(l->header.d_model, g->n_components)))
            return false;
    }
    return true;
}

static const struct trained_network *mtp_network(const struct trained_predictors *l)
{
    return (const struct trained_network *)(l->bytes + l->header.mtp);
}

static bool check_mtp(const struct trained_predictors *l)
{
    uint32_t n_in = 2 * l->header.d_model;
    return lies_inside(l, l->header.mtp, sizeof(struct trained_network)) &&
           check_network(l, mtp_network(l), n_in, n_in, mtp_outputs(l));
}

bool trained_view(const void *bytes, size_t n, struct trained_predictors *out,
                  char why[TRAINED_WHY])
{
    struct trained_predictors l = {.bytes = bytes};
    const uint16_t one = 1;
    if (!*(const unsigned char *)&one)
        return refuse(why, "it is little-endian, this machine is not");
    if (n < sizeof l.header)
        return refuse(why, "it is no file of `moed train`: it has %llu bytes",
                      (unsigned long long)n);
    memcpy(&l.header, bytes, sizeof l.header);
    if (!check_header(&l.header, n, why))
        return false;
    if (!lies_inside(&l, l.header.layers, sizeof *l.layers * (uint64_t)l.header.n_layers) ||
        (l.header.n_groups &&
         !lies_inside(&l, l.header.groups, sizeof *l.groups * (uint64_t)l.header.n_groups)))
        return refuse(why, "it is damaged: its tables lie outside it");
    l.layers = (const struct trained_layer *)(l.bytes + l.header.layers);
    uint64_t counts = (uint64_t)l.header.n_layers * l.header.n_experts;
    if (l.header.activations && !lies_inside(&l, l.header.activations, counts * sizeof(uint32_t)))
        return refuse(why, "it is damaged: its profile lies outside it");
    if (l.header.n_groups) /* without groups the offset has no meaning */
        l.groups = (const struct trained_group *)(l.bytes + l.header.groups);
    if (!check_groups(&l))
        return refuse(why, "it is damaged: a PCA in it is none");
    if (l.header.mtp && !check_mtp(&l))
        return refuse(why, "it is damaged: its MTP is none");
    for (uint32_t i = 0; i < l.header.n_layers; i++)
        if (!check_layer(&l, i))
            return refuse(why, "it is damaged: what it has of layer %u is nothing of it",
                          (unsigned)i);
    *out = l;
    return true;
}

bool trained_is_intact(const struct trained_predictors *l)
{
    return trained_hash(0, l->bytes + sizeof l->header, l->header.bytes - sizeof l->header) ==
           l->header.checksum;
}

bool trained_fits_shape(const struct trained_predictors *l, const struct predict_shape *s)
{
    const struct trained_header *h = &l->header;
    return h->n_layers == s->n_layers && h->first_layer == s->first_layer &&
           h->n_experts == s->n_experts && h->n_used == s->n_used && h->d_model == s->d_model;
}

bool trained_fits(const struct trained_predictors *l, const struct trained_model *model,
                  char why[TRAINED_WHY])
{
    const struct trained_header *h = &l->header;
    const struct predict_shape *s = &model->shape;
    if (!trained_fits_shape(l, s))
        return refuse(why,
                      "it is of another model: %.40s, %u layers, %u of %u experts, width %u; this "
                      "one has %u, %u of %u, %u",
                      h->model, (unsigned)h->n_layers, (unsigned)h->n_used, (unsigned)h->n_experts,
                      (unsigned)h->d_model, (unsigned)s->n_layers, (unsigned)s->n_used,
                      (unsigned)s->n_experts, (unsigned)s->d_model);
    bool known = h->routers && model->routers;
    if (known && h->routers == model->routers) /* perhaps under another name */
        return true;
    if (strncmp(h->model, model->name, sizeof h->model - 1) != 0)
        return refuse(why, "it is of another model: %.40s, not %.40s", h->model, model->name);
    if (known)
        return refuse(why, "it is of another training of %.40s: the gates are not the same",
                      h->model);
    return true;
}

/* ---- The parts ---- */

const uint32_t *trained_activations(const struct trained_predictors *l)
{
    uint64_t offset = l->header.activations;
    return offset ? (const uint32_t *)(l->bytes + offset) : NULL;
}

const float *trained_residual(const struct trained_predictors *l, uint32_t layer)
{
    uint64_t offset = l->layers[layer].residual;
    return offset ? (const float *)(l->bytes + offset) : NULL;
}

/* The places of a network's numbers: first the biases, then the matrices. */
struct place {
    const float *bias;
    const uint16_t *w;
};

static struct trained_affine take(struct place *at, uint32_t n_in, uint32_t n_out)
{
    struct trained_affine a = {n_in, n_out, at->bias, at->w};
    at->bias += n_out;
    at->w += (size_t)n_in * n_out;
    return a;
}

static void open_network(const struct trained_predictors *l, const struct trained_network *n,
                         uint32_t n_out, struct trained_net *out)
{
    uint32_t hidden = n->n_hidden;
    size_t floats = (size_t)hidden * (n->n_gated ? 4 : 1) + n_out;
    struct place at = {.bias = (const float *)(l->bytes + n->offset)};
    at.w = (const uint16_t *)(at.bias + floats);
    *out = (struct trained_net){.activation = (enum trained_activation)n->activation,
                                .has_block = n->n_gated > 0};
    out->in = take(&at, n->n_in, hidden);
    if (out->has_block) {
        out->first = take(&at, hidden, hidden);
        out->second = take(&at, hidden, hidden);
        out->gate = take(&at, n->n_gated, hidden);
    }
    out->out = take(&at, hidden, n_out);
}

bool trained_mlp(const struct trained_predictors *l, uint32_t layer, struct trained_net *out)
{
    const struct trained_network *n = &l->layers[layer].mlp;
    if (n->offset)
        open_network(l, n, l->header.n_experts, out);
    return n->offset != 0;
}

bool trained_llapor(const struct trained_predictors *l, uint32_t layer, struct trained_net *out,
                    struct trained_affine *pca)
{
    const struct trained_layer *y = &l->layers[layer];
    if (!y->llapor.offset)
        return false;
    const struct trained_group *g = &l->groups[y->group];
    open_network(l, &y->llapor, l->header.n_experts, out);
    const float *bias = (const float *)(l->bytes + g->offset);
    *pca = (struct trained_affine){l->header.d_model, g->n_components, bias,
                                   (const uint16_t *)(bias + g->n_components)};
    return true;
}

bool trained_mtp(const struct trained_predictors *l, struct trained_net *out)
{
    if (l->header.mtp)
        open_network(l, mtp_network(l), mtp_outputs(l), out);
    return l->header.mtp != 0;
}

bool trained_has(const struct trained_predictors *l, enum sched_predictor kind)
{
    if (kind == PREDICT_MTP)
        return l->header.mtp != 0;
    for (uint32_t i = 0; i < l->header.n_layers; i++) {
        const struct trained_layer *y = &l->layers[i];
        if ((kind == PREDICT_RESIDUAL && y->residual) || (kind == PREDICT_MLP && y->mlp.offset) ||
            (kind == PREDICT_LLAPOR && y->llapor.offset))
            return true;
    }
    return false;
}
