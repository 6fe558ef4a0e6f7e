/* A small routing trace with values computed from their places, written to a folder of the test
 * program; for test_trace.c and test_trace_broken.c. */
#ifndef MOED_TESTS_TRACE_SAMPLE_H
#define MOED_TESTS_TRACE_SAMPLE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "trace/layout.h"
#include "trace/trace.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char folder[] = "/tmp/moed-trace-XXXXXX", path[64];

static inline int make_folder(void **state)
{
    (void)state;
    if (!mkdtemp(folder))
        return 1;
    snprintf(path, sizeof path, "%s/trace", folder);
    return 0;
}

static inline int remove_folder(void **state)
{
    (void)state;
    unlink(path);
    return rmdir(folder); /* fails if a file is left */
}

enum { LAYERS = 3, FIRST = 1, WITH_EXPERTS = LAYERS - FIRST, WIDTH = 5, SEQUENCES = 2, VOCAB = 8 };
static const uint32_t lengths[SEQUENCES] = {5, 3}, prompts[SEQUENCES] = {4, 0};

struct sample {
    struct trace_shape shape;
    struct trace_layer layers[LAYERS];
    float *numbers; /* of the routers */
};

static inline float router_value(uint32_t layer, uint32_t i)
{
    return (float)layer + (float)i / 1024;
}

static inline struct sample sample_new(uint32_t n_experts, uint32_t has)
{
    struct sample x = {.shape = {.model = "a small one",
                                 .n_layers = LAYERS,
                                 .first_layer = FIRST,
                                 .n_experts = n_experts,
                                 .n_used = 2,
                                 .d_model = WIDTH,
                                 .dense_bytes = 12345,
                                 .has = has,
                                 .router = {.kind = ROUTER_SIGMOID,
                                            .n_experts = n_experts,
                                            .n_used = 2,
                                            .n_groups = 2,
                                            .n_groups_used = 1,
                                            .renormalise = true,
                                            .scale = 2.5f}}};
    uint32_t a_layer = n_experts * (WIDTH + 2);
    x.numbers = malloc(LAYERS * a_layer * sizeof *x.numbers);
    for (uint32_t l = 0; l < LAYERS; l++) {
        float *n = x.numbers + l * a_layer;
        for (uint32_t i = 0; i < a_layer; i++)
            n[i] = router_value(l, i);
        x.layers[l] = (struct trace_layer){.n_segments = 1 + l, .segment_bytes = 1000 * l + 7};
        if (has & TRACE_ROUTERS) {
            x.layers[l].matrix = n;
            x.layers[l].bias = l == 1 ? n + n_experts * WIDTH : NULL;
            x.layers[l].selection_bias = l == 2 ? n + n_experts * (WIDTH + 1) : NULL;
        }
    }
    return x;
}

static inline uint32_t token_id(uint32_t sequence, uint32_t token)
{
    return (sequence * 3 + token * token) % VOCAB;
}

/* The second is never the first one. */
static inline uint32_t choice(const struct trace_shape *s, uint32_t sequence, uint32_t token,
                              uint32_t layer, uint32_t rank)
{
    uint32_t first = (sequence * 7 + token * 3 + layer * 5) % s->n_experts;
    return rank == 0 ? first : (first + 1 + token % (s->n_experts - 1)) % s->n_experts;
}

/* A power of 2 whose exponent is a multiple of 1/16, which the file holds exactly; every 5th expert
 * has none. */
static inline float gate_value(uint32_t sequence, uint32_t token, uint32_t layer, uint32_t expert)
{
    uint32_t steps = sequence + token * 11 + layer * 3 + expert;
    return expert % 5 == 4 ? 0 : (float)exp2(-(double)(steps % 255) / 16);
}

/* Halves hold it exactly. */
static inline float hidden_value(uint32_t sequence, uint32_t token, uint32_t layer, uint32_t i)
{
    return (float)(sequence * 512 + token * 64 + layer * 16 + i) / 4 - 100;
}

static inline bool has_hidden(uint32_t token)
{
    return token % 2 == 1;
}

static inline float embedding_value(uint32_t id, uint32_t i)
{
    return (float)id * 8 - (float)i;
}

static inline enum error_code write_sample_sequence(struct trace_writer *w,
                                                    const struct trace_shape *s, uint32_t q,
                                                    struct error *e)
{
    uint32_t tokens[8], n = lengths[q];
    uint16_t selected[8 * WITH_EXPERTS * 2];
    float *gate = malloc(8 * WITH_EXPERTS * s->n_experts * sizeof *gate);
    float hidden[8][WITH_EXPERTS * WIDTH];
    const float *hidden_of[8];
    for (uint32_t t = 0; t < n; t++) {
        tokens[t] = token_id(q, t);
        hidden_of[t] = has_hidden(t) ? hidden[t] : NULL;
        for (uint32_t l = 0; l < WITH_EXPERTS; l++) {
            for (uint32_t k = 0; k < 2; k++)
                selected[(t * WITH_EXPERTS + l) * 2 + k] = (uint16_t)choice(s, q, t, FIRST + l, k);
            for (uint32_t i = 0; i < s->n_experts; i++)
                gate[(t * WITH_EXPERTS + l) * s->n_experts + i] = gate_value(q, t, FIRST + l, i);
            for (uint32_t i = 0; i < WIDTH; i++)
                hidden[t][l * WIDTH + i] = hidden_value(q, t, FIRST + l, i);
        }
    }
    struct trace_data data = {.sequence = {n, prompts[q], tokens},
                              .selected = selected,
                              .gate = s->has & TRACE_GATE ? gate : NULL,
                              .hidden = s->has & TRACE_HIDDEN ? hidden_of : NULL};
    enum error_code code = trace_write_sequence(w, &data, e);
    free(gate);
    return code;
}

static inline enum error_code write_sample_embeddings(struct trace_writer *w, uint32_t q,
                                                      struct error *e)
{
    enum error_code code = ERROR_OK;
    for (uint32_t t = 0; t < lengths[q] && !code; t++) {
        float embedding[WIDTH];
        for (uint32_t i = 0; i < WIDTH; i++)
            embedding[i] = embedding_value(token_id(q, t), i);
        code = trace_write_embedding(w, token_id(q, t), embedding, e);
    }
    return code;
}

static inline void write_sample(const struct sample *x)
{
    struct trace_writer *w;
    struct error e = {0};
    assert_int_equal(trace_writer_new(path, &x->shape, x->layers, &w, &e), ERROR_OK);
    for (uint32_t q = 0; q < SEQUENCES; q++) {
        if (x->shape.has & TRACE_EMBEDDINGS)
            assert_int_equal(write_sample_embeddings(w, q, &e), ERROR_OK);
        assert_int_equal(write_sample_sequence(w, &x->shape, q, &e), ERROR_OK);
    }
    assert_int_equal(access(path, F_OK), -1); /* not before the end */
    assert_int_equal(trace_writer_finish(w, &e), ERROR_OK);
}

static inline uint8_t *read_file(size_t *bytes)
{
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    fseek(f, 0, SEEK_END);
    *bytes = (size_t)ftell(f);
    rewind(f);
    uint8_t *data = malloc(*bytes);
    assert_int_equal(fread(data, 1, *bytes, f), *bytes);
    fclose(f);
    return data;
}

#endif
