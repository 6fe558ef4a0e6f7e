/* Writes a synthetic trace; see synthesize.h. */
#include "bench/replay/synthesize.h"

#include "base/checked.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Buffers for one sequence. */
struct buffers {
    uint32_t *tokens;      /* [sequence] */
    uint16_t *selected;    /* [sequence][L][n_used] */
    float *gate;           /* [sequence][L][n_experts] */
    float *hidden;         /* [sequence][L][d_model] */
    const float **pointer; /* [sequence] into hidden */
    float *embedding;      /* [d_model] */
};

static void *capacity(uint64_t a, uint64_t b, uint64_t c, size_t size)
{
    uint64_t n;
    if (!checked_mul(a, b, &n) || !checked_mul(n, c, &n) || n > SIZE_MAX / size)
        return NULL;
    return calloc((size_t)n, size);
}

static void buffers_fini(struct buffers *b)
{
    free(b->tokens);
    free(b->selected);
    free(b->gate);
    free(b->hidden);
    free(b->pointer);
    free(b->embedding);
}

static bool buffers_init(struct buffers *b, const struct synthesis *s)
{
    uint64_t layers = s->n_layers - s->first_layer;
    *b = (struct buffers){
        .tokens = capacity(s->sequence, 1, 1, sizeof *b->tokens),
        .selected = capacity(s->sequence, layers, s->n_used, sizeof *b->selected),
        .gate = capacity(s->sequence, layers, s->n_experts, sizeof *b->gate),
        .hidden = capacity(s->sequence, layers, s->d_model, sizeof *b->hidden),
        .pointer = capacity(s->sequence, 1, 1, sizeof *b->pointer),
        .embedding = capacity(s->d_model, 1, 1, sizeof *b->embedding),
    };
    if (b->tokens && b->selected && b->gate && b->hidden && b->pointer && b->embedding)
        return true;
    buffers_fini(b);
    return false;
}

static enum error_code write_sequence(struct trace_writer *w, struct synthesizer *g,
                                      const struct synthesis *s, uint64_t number, uint32_t n,
                                      struct buffers *b, struct error *e)
{
    size_t layers = s->n_layers - s->first_layer;
    enum error_code code = ERROR_OK;
    synthesizer_begin(g, number);
    for (uint32_t t = 0; t < n && !code; t++) {
        float *hidden = b->hidden + t * layers * s->d_model;
        b->pointer[t] = hidden;
        b->tokens[t] = synthesizer_next(g, b->selected + t * layers * s->n_used,
                                        b->gate + t * layers * s->n_experts, hidden);
        synthesizer_embedding(g, b->tokens[t], b->embedding);
        code = trace_write_embedding(w, b->tokens[t], b->embedding, e);
    }
    struct trace_data data = {
        .sequence = {n, s->prompt < n ? (uint32_t)s->prompt : n, b->tokens},
        .selected = b->selected,
        .gate = b->gate,
        .hidden = b->pointer,
    };
    return code ? code : trace_write_sequence(w, &data, e);
}

static enum error_code write_all(struct trace_writer *w, struct synthesizer *g,
                                 const struct synthesis *s, struct error *e)
{
    struct buffers b;
    if (!buffers_init(&b, s))
        return error_set(e, ERROR_MEMORY, "no memory for a sequence of %llu tokens",
                         (unsigned long long)s->sequence);
    enum error_code code = ERROR_OK;
    uint64_t left = s->n_tokens;
    for (uint64_t number = s->first_sequence; left && !code; number++) {
        uint32_t n = (uint32_t)(left < s->sequence ? left : s->sequence);
        code = write_sequence(w, g, s, number, n, &b, e);
        left -= n;
    }
    buffers_fini(&b);
    return code;
}

static struct trace_shape shape_of(const struct synthesis *s)
{
    struct trace_shape shape = {
        .n_layers = (uint32_t)s->n_layers,
        .first_layer = (uint32_t)s->first_layer,
        .n_experts = (uint32_t)s->n_experts,
        .n_used = (uint32_t)s->n_used,
        .d_model = (uint32_t)s->d_model,
        .dense_bytes = s->dense_bytes,
        .has = TRACE_GATE | TRACE_EMBEDDINGS | TRACE_HIDDEN | TRACE_ROUTERS,
        .router = synthesis_router(s),
    };
    snprintf(shape.model, sizeof shape.model, "%s", s->model);
    return shape;
}

enum error_code synthesize(const struct synthesis *s, const char *path, struct error *e)
{
    enum error_code code = synthesis_check(s, e);
    if (code)
        return code;
    struct synthesizer *g = synthesizer_new(s);
    if (!g)
        return error_set(e, ERROR_MEMORY, "no memory for the model");
    struct trace_shape shape = shape_of(s);
    struct trace_writer *w;
    code = trace_writer_new(path, &shape, synthesizer_layers(g), &w, e);
    if (!code) {
        code = write_all(w, g, s, e);
        if (!code)
            code = trace_writer_finish(w, e);
        else
            trace_writer_abandon(w);
    }
    synthesizer_free(g);
    return code;
}
