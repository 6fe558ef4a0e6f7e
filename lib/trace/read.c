/* Reads an open trace; see trace.h. open.c has checked everything that this file relies on. */
#include "trace/read.h"

#include "quant/quant.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void trace_close(struct trace *t)
{
    if (!t)
        return;
    file_map_close(&t->map);
    free(t->copy);
    free(t->layers);
    free(t->sequences);
    free(t->embeddings);
    free(t);
}

const struct trace_shape *trace_shape(const struct trace *t)
{
    return &t->shape;
}

const struct trace_layer *trace_layer(const struct trace *t, uint32_t layer)
{
    return &t->layers[layer];
}

uint32_t trace_sequences(const struct trace *t)
{
    return t->n_sequences;
}

const struct trace_sequence *trace_sequence(const struct trace *t, uint32_t sequence)
{
    return &t->sequences[sequence].public;
}

uint64_t trace_tokens(const struct trace *t)
{
    return t->n_tokens;
}

uint32_t trace_embeddings(const struct trace *t)
{
    return t->n_embeddings;
}

struct trace_part_bytes trace_part_bytes(const struct trace *t)
{
    return t->parts;
}

/* The index of a token's row of values for a layer, in an array [n_tokens][L]. */
static size_t row(const struct trace *t, uint32_t token, uint32_t layer)
{
    return (size_t)token * trace_layers_with_experts(&t->shape) + (layer - t->shape.first_layer);
}

void trace_selected(const struct trace *t, uint32_t sequence, uint32_t token, uint32_t layer,
                    uint32_t *selected)
{
    uint32_t n = t->shape.n_used;
    size_t first = row(t, token, layer) * n;
    const uint8_t *narrow = t->sequences[sequence].selected;
    if (trace_choice_bytes(&t->shape) == 1)
        for (uint32_t k = 0; k < n; k++)
            selected[k] = narrow[first + k];
    else
        for (uint32_t k = 0; k < n; k++)
            selected[k] = ((const uint16_t *)(const void *)narrow)[first + k];
}

bool trace_gate(const struct trace *t, uint32_t sequence, uint32_t token, uint32_t layer,
                float *probability)
{
    if (!(t->shape.has & TRACE_GATE))
        return false;
    uint32_t n = t->shape.n_experts;
    const uint8_t *packed = t->sequences[sequence].gate + row(t, token, layer) * n;
    for (uint32_t i = 0; i < n; i++)
        probability[i] = t->gate_values[packed[i]];
    return true;
}

/* Replaces infinities and NaNs of the file by 0, so that callers compute with finite numbers. */
static void halves_to_floats(const uint16_t *halves, uint32_t n, float *out)
{
    for (uint32_t i = 0; i < n; i++) {
        float x = half_to_float(halves[i]);
        out[i] = isfinite(x) ? x : 0;
    }
}

static int compare_ids(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

const uint32_t *trace_hidden_tokens(const struct trace *t, uint32_t sequence, uint32_t *n)
{
    *n = t->sequences[sequence].n_hidden;
    return t->sequences[sequence].hidden_at;
}

bool trace_hidden(const struct trace *t, uint32_t sequence, uint32_t token, uint32_t layer,
                  float *hidden)
{
    const struct sequence_index *s = &t->sequences[sequence];
    const uint32_t *at =
        s->n_hidden ? bsearch(&token, s->hidden_at, s->n_hidden, sizeof *at, compare_ids) : NULL;
    if (!at)
        return false;
    size_t first = row(t, (uint32_t)(at - s->hidden_at), layer) * t->shape.d_model;
    halves_to_floats(s->hidden + first, t->shape.d_model, hidden);
    return true;
}

bool trace_embedding(const struct trace *t, uint32_t id, float *embedding)
{
    /* compare_ids reads only an entry's first member, its id */
    const struct embedding_index *found =
        t->n_embeddings ? bsearch(&id, t->embeddings, t->n_embeddings, sizeof *found, compare_ids)
                        : NULL;
    if (!found)
        return false;
    halves_to_floats(found->halves, t->shape.d_model, embedding);
    return true;
}
