/* The sizes of the networks and the layout of the trained predictors; see internal.h. */
#include "train/internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* The papers do not give these. docs/training.md compares some of them. */
enum { LLAPOR_HIDDEN = 256 };
enum { MLP_PARAMETERS = 2 << 20 };
enum { COMPONENTS = 256, MIDDLE_COMPONENTS = 512 }; /* PreScope's */
#define DROPOUT 0.1f

/* ---- Sizes ---- */

/* ProMoE has "approximately 2 million parameters". Limits: at most twice as many hidden values as
 * inputs, and at least 2 n_experts, which net_start_linear needs. */
static uint32_t mlp_hidden(const struct training *t)
{
    uint32_t d = t->shape->d_model, n = t->shape->n_experts;
    uint32_t hidden =
        t->options.hidden ? t->options.hidden : smaller(MLP_PARAMETERS / (d + n), 2 * d);
    hidden = hidden > 2 * n ? hidden : 2 * n;
    return smaller((hidden + 15) / 16 * 16, TRAINED_MAX_WIDTH);
}

struct net_shape train_mlp_shape(const struct training *t)
{
    return (struct net_shape){.n_in = t->shape->d_model,
                              .n_hidden = mlp_hidden(t),
                              .n_out = t->shape->n_experts,
                              .activation = TRAINED_RELU,
                              .dropout = DROPOUT};
}

/* PreScope compresses 4096 values to 256, in the middle group to 512. A narrower model would lose
 * too much at that ratio: it keeps half of its width, in the middle group all of it. */
static uint32_t group_components(const struct training *t, enum layer_group g)
{
    uint32_t d = t->shape->d_model, wanted = t->options.components;
    bool middle = g == GROUP_MIDDLE;
    if (wanted)
        return smaller(middle ? 2 * wanted : wanted, d);
    return middle ? smaller(MIDDLE_COMPONENTS, d) : smaller(COMPONENTS, (d + 1) / 2);
}

struct net_shape train_llapor_shape(const struct training *t, uint32_t layer)
{
    enum layer_group g = t->groups[layer];
    uint32_t n = t->shape->n_experts;
    return (struct net_shape){.n_in = t->components[g] + 2 * n,
                              .n_hidden = LLAPOR_HIDDEN > 2 * n ? LLAPOR_HIDDEN : 2 * n,
                              .n_out = n,
                              .n_gated = g == GROUP_MIDDLE ? t->components[g] : 0,
                              .activation = TRAINED_GELU,
                              .dropout = DROPOUT};
}

struct trained_model train_model_of(const struct trace_shape *s, const struct trace_layer *layers)
{
    struct trained_model model = {.name = s->model,
                                  .shape = {.n_layers = s->n_layers,
                                            .first_layer = s->first_layer,
                                            .n_experts = s->n_experts,
                                            .n_used = s->n_used,
                                            .d_model = s->d_model}};
    size_t bytes = (size_t)s->n_experts * s->d_model * sizeof(float);
    for (uint32_t i = s->first_layer; s->has & TRACE_ROUTERS && i < s->n_layers; i++)
        model.routers = trained_hash(model.routers, layers[i].matrix, bytes);
    return model;
}

/* At most: with the shape of the middle group, which has the largest network. */
uint64_t train_thread_bytes(const struct trace *trace, const struct train_options *options)
{
    struct training t = {.shape = trace_shape(trace), .options = *options};
    struct net_shape mlp = train_mlp_shape(&t);
    uint64_t rows = 0, most = 0, n_experts = t.shape->n_experts;
    for (uint32_t i = 0; i < trace_sequences(trace); i++) {
        uint32_t n;
        trace_hidden_tokens(trace, i, &n);
        rows += n;
    }
    t.groups = calloc(t.shape->n_layers, sizeof *t.groups);
    for (uint32_t i = 0; t.groups && i < t.shape->n_layers; i++)
        t.groups[i] = GROUP_MIDDLE;
    t.components[GROUP_MIDDLE] = group_components(&t, GROUP_MIDDLE);
    struct net_shape llapor = t.groups ? train_llapor_shape(&t, 0) : mlp;
    free(t.groups);
    const struct net_shape *shapes[] = {&mlp, &llapor};
    for (int i = 0; i < 2; i++) {
        /* inputs and choices; logits of a tenth for checking; weights, gradient, two moments, best
         * weights */
        uint64_t bytes = rows * 4 * (shapes[i]->n_in + t.shape->n_used) +
                         rows / 10 * 5 * n_experts +
                         5 * sizeof(float) * (uint64_t)net_parts(shapes[i]).n;
        if (train_wants(&t, i ? TRAIN_LLAPOR : TRAIN_MLP) && bytes > most)
            most = bytes;
    }
    return most;
}

uint32_t train_threads(uint32_t wanted, uint64_t thread_bytes, uint64_t available)
{
    uint64_t fit = thread_bytes ? available / thread_bytes : wanted;
    return fit >= wanted ? wanted : fit ? (uint32_t)fit : 1;
}

static void place_networks(struct training *t)
{
    struct image *m = &t->image;
    for (uint32_t i = t->shape->first_layer; i < t->shape->n_layers; i++) {
        uint32_t at = i - t->shape->first_layer;
        if (train_wants(t, TRAIN_RESIDUAL) && i + 1 < t->shape->n_layers)
            image_place_residual(m, i);
        if (train_wants(t, TRAIN_MLP) && at >= t->options.stride) {
            struct net_shape shape = train_mlp_shape(t);
            image_place_network(m, &m->layers[i].mlp, &shape);
        }
        if (train_wants(t, TRAIN_LLAPOR) && at >= LLAPOR_DISTANCE) {
            struct net_shape shape = train_llapor_shape(t, i);
            image_place_network(m, &m->layers[i].llapor, &shape);
            m->layers[i].group = t->places[t->groups[i]];
        }
    }
}

enum error_code train_lay_out(struct training *t, struct error *e)
{
    const struct trace_shape *s = t->shape;
    struct trained_header h = {
        .magic = TRAINED_MAGIC,
        .version = TRAINED_VERSION,
        .n_layers = s->n_layers,
        .first_layer = s->first_layer,
        .n_experts = s->n_experts,
        .n_used = s->n_used,
        .d_model = s->d_model,
        .stride = train_wants(t, TRAIN_MLP) ? t->options.stride : 0,
        .n_tokens = t->samples.n_train,
        .routers = t->options.routers ? t->options.routers
                                      : train_model_of(s, trace_layer(t->trace, 0)).routers};
    snprintf(h.model, sizeof h.model, "%s", t->options.model ? t->options.model : s->model);
    keep_header(t, &h);
    for (uint32_t i = s->first_layer + LLAPOR_DISTANCE;
         train_wants(t, TRAIN_LLAPOR) && i < s->n_layers; i++) {
        enum layer_group g = t->groups[i];
        if (!t->components[g])
            t->places[g] = h.n_groups++;
        t->components[g] = group_components(t, g);
    }
    if (!image_init(&t->image, &h))
        return error_set(e, ERROR_MEMORY, "no memory for the trained predictors");
    place_networks(t);
    keep_places(t);
    for (int g = 0; g < LAYER_GROUPS; g++)
        if (t->components[g])
            image_place_group(&t->image, t->places[g], t->components[g]);
    if (!image_allocate(&t->image))
        return error_set(e, ERROR_MEMORY, "no memory for %" PRIu64 " bytes of trained predictors",
                         t->image.end);
    keep_bodies(t);
    return ERROR_OK;
}
