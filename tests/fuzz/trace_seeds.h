/* The seeds of corpus/trace: a minimal trace of each relevant combination of parts. */
#include "trace/trace.h"

#include <stdio.h>
#include <stdlib.h>

enum { SEED_LAYERS = 2, SEED_WIDTH = 3, SEED_TOKENS = 2 };

struct trace_seed {
    const char *name;
    uint32_t n_experts, n_groups, has;
    bool biases;
};

static const struct trace_seed trace_seeds[] = {
    {"choices", 3, 0, 0, false},
    {"wide", 260, 0, 0, false},
    {"gates", 4, 2, TRACE_GATE, false},
    {"all", 4, 0, TRACE_GATE | TRACE_EMBEDDINGS | TRACE_HIDDEN | TRACE_ROUTERS, true},
};

static void trace_seed_layers(const struct trace_seed *seed, const float *numbers,
                              struct trace_layer layers[SEED_LAYERS])
{
    for (unsigned l = 0; l < SEED_LAYERS; l++) {
        layers[l] = (struct trace_layer){.n_segments = 1, .segment_bytes = 64};
        if (seed->has & TRACE_ROUTERS)
            layers[l].matrix = numbers;
        if (seed->biases)
            layers[l].bias = layers[l].selection_bias = numbers;
    }
}

static enum error_code trace_seed_sequence(struct trace_writer *w, const struct trace_seed *seed,
                                           const float *numbers, struct error *e)
{
    const uint32_t tokens[SEED_TOKENS] = {5, 6};
    const uint16_t selected[SEED_TOKENS * (SEED_LAYERS - 1) * 2] = {1, 2, 2, 0};
    const float *hidden[SEED_TOKENS] = {NULL, numbers};
    struct trace_data data = {.sequence = {SEED_TOKENS, 1, tokens},
                              .selected = selected,
                              .gate = seed->has & TRACE_GATE ? numbers : NULL,
                              .hidden = seed->has & TRACE_HIDDEN ? hidden : NULL};
    enum error_code code = ERROR_OK;
    for (unsigned i = 0; (seed->has & TRACE_EMBEDDINGS) && i < SEED_TOKENS && !code; i++)
        code = trace_write_embedding(w, tokens[i], numbers, e);
    return code ? code : trace_write_sequence(w, &data, e);
}

static enum error_code trace_seed_write(const char *path, const struct trace_seed *seed,
                                        struct error *e)
{
    float numbers[64];
    for (unsigned i = 0; i < 64; i++)
        numbers[i] = 1.0f / (float)(i + 1);
    struct trace_shape shape = {.model = "seed",
                                .n_layers = SEED_LAYERS,
                                .first_layer = SEED_LAYERS - 1,
                                .n_experts = seed->n_experts,
                                .n_used = 2,
                                .d_model = SEED_WIDTH,
                                .dense_bytes = 1,
                                .has = seed->has,
                                .router = {.n_experts = seed->n_experts,
                                           .n_used = 2,
                                           .n_groups = seed->n_groups,
                                           .n_groups_used = seed->n_groups ? 1 : 0,
                                           .scale = 1}};
    struct trace_layer layers[SEED_LAYERS];
    struct trace_writer *w;
    trace_seed_layers(seed, numbers, layers);
    enum error_code code = trace_writer_new(path, &shape, layers, &w, e);
    if (code)
        return code;
    code = trace_seed_sequence(w, seed, numbers, e);
    if (!code)
        return trace_writer_finish(w, e);
    trace_writer_abandon(w);
    return code;
}
