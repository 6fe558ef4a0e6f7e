/* Fuzz target of trace files. Any bytes either give a trace with only valid values, or an error of
 * one line. */
#include "trace/trace.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds)
{
    if (!holds)
        abort();
}

static void require_numbers(const float *values, uint64_t n)
{
    for (uint64_t i = 0; values && i < n; i++)
        require(isfinite(values[i]));
}

static void read_layers(const struct trace *t)
{
    const struct trace_shape *s = trace_shape(t);
    for (uint32_t i = s->first_layer; i < s->n_layers; i++) {
        const struct trace_layer *l = trace_layer(t, i);
        require(l->n_segments > 0 && l->segment_bytes > 0);
        require(!l->matrix == !(s->has & TRACE_ROUTERS));
        require_numbers(l->matrix, (uint64_t)s->n_experts * s->d_model);
        require_numbers(l->bias, s->n_experts);
        require_numbers(l->selection_bias, s->n_experts);
    }
}

static void read_token(const struct trace *t, uint32_t sequence, uint32_t token, uint32_t layer,
                       uint32_t *selected, float *row)
{
    const struct trace_shape *s = trace_shape(t);
    trace_selected(t, sequence, token, layer, selected);
    for (uint32_t k = 0; k < s->n_used; k++)
        require(selected[k] < s->n_experts);
    if (trace_gate(t, sequence, token, layer, row))
        for (uint32_t i = 0; i < s->n_experts; i++)
            require(row[i] >= 0 && row[i] <= 1);
    if (trace_hidden(t, sequence, token, layer, row))
        require_numbers(row, s->d_model);
}

static void read_sequences(const struct trace *t, uint32_t *selected, float *row)
{
    const struct trace_shape *s = trace_shape(t);
    uint64_t tokens = 0;
    for (uint32_t q = 0; q < trace_sequences(t); q++) {
        const struct trace_sequence *seq = trace_sequence(t, q);
        require(seq->n_tokens > 0 && seq->n_prompt <= seq->n_tokens);
        tokens += seq->n_tokens;
        for (uint32_t i = 0; i < seq->n_tokens; i++) {
            if (trace_embedding(t, seq->tokens[i], row))
                require_numbers(row, s->d_model);
            for (uint32_t l = s->first_layer; l < s->n_layers; l++)
                read_token(t, q, i, l, selected, row);
        }
    }
    require(tokens == trace_tokens(t));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct trace *t = NULL;
    struct error e = {0};
    enum error_code code = trace_open_bytes(data, size, &t, &e);
    if (code) {
        require(!t && e.code == code && e.text[0] && !strchr(e.text, '\n'));
        return 0;
    }
    const struct trace_shape *s = trace_shape(t);
    size_t widest = s->n_experts > s->d_model ? s->n_experts : s->d_model;
    uint32_t *selected = malloc(s->n_used * sizeof *selected);
    float *row = malloc(widest * sizeof *row);
    require(selected && row);
    read_layers(t);
    read_sequences(t, selected, row);
    free(selected);
    free(row);
    trace_close(t);
    return 0;
}
