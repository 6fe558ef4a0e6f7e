/* Recordings; see recording.h. */
#include "recording.h"

#include "model/router.h"
#include "quant/quant.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* The largest recording. Only gate inputs of every token of a large model come near it. */
#define MAX_BYTES (32u << 20)

struct recording {
    const struct model_params *params;
    struct recording_options options;
    uint32_t layers;         /* with experts */
    uint32_t capacity;       /* positions of a step */
    uint32_t first, n, sent; /* positions of the step; sent: how many of them */
    uint32_t n_hidden;       /* positions of the step with gate inputs */
    uint32_t *hidden_at;     /* [n_hidden] */
    uint16_t *selected;      /* [capacity][layers][n_used] */
    float *gate;             /* [capacity][layers][n_experts]; NULL: not requested */
    uint16_t *hidden;        /* [the most with gate inputs][layers][d_model] */
};

/* How many positions before `position` have their gate inputs recorded. */
static uint32_t hidden_before(const struct recording_options *o, uint32_t position)
{
    if (!o->hidden_every)
        return 0;
    return position / o->hidden_every + (position % o->hidden_every > o->hidden_phase);
}

/* The most such positions among any n consecutive ones. */
static uint32_t hidden_most(const struct recording_options *o, uint32_t n)
{
    return o->hidden_every ? n / o->hidden_every + (n % o->hidden_every != 0) : 0;
}

struct token_bytes {
    uint64_t plain, hidden; /* without the gates' inputs; of these */
};

static struct token_bytes token_bytes(const struct recording *r)
{
    const struct router_params *p = &r->params->router;
    uint64_t a_layer = sizeof(uint16_t) * p->n_used + (r->options.gate ? 4ull * p->n_experts : 0);
    return (struct token_bytes){.plain = r->layers * a_layer,
                                .hidden = r->layers * sizeof(uint16_t) * r->params->d_model};
}

uint64_t recording_bytes(const struct recording *r)
{
    if (!r)
        return 0;
    struct token_bytes bytes = token_bytes(r);
    return sizeof *r + r->capacity * bytes.plain +
           hidden_most(&r->options, r->capacity) * bytes.hidden;
}

static bool allocate(struct recording *r)
{
    const struct router_params *p = &r->params->router;
    size_t rows = (size_t)r->capacity * r->layers;
    size_t n_hidden = hidden_most(&r->options, r->capacity);
    r->selected = malloc(rows * p->n_used * sizeof *r->selected);
    if (r->options.gate)
        r->gate = malloc(rows * p->n_experts * sizeof *r->gate);
    if (n_hidden) {
        r->hidden_at = malloc(n_hidden * sizeof *r->hidden_at);
        r->hidden = malloc(n_hidden * r->layers * r->params->d_model * sizeof *r->hidden);
    }
    return r->selected && (!r->options.gate || r->gate) &&
           (!n_hidden || (r->hidden_at && r->hidden));
}

enum error_code recording_new(const struct model_params *p, const struct recording_options *options,
                              uint32_t max_tokens, struct recording **out, struct error *e)
{
    if (options->hidden_every && options->hidden_phase >= options->hidden_every)
        return error_set(e, ERROR_USAGE,
                         "gate inputs of every %" PRIu32 "th token, phase %" PRIu32
                         ": expected a phase below that",
                         options->hidden_every, options->hidden_phase);
    struct recording *r = calloc(1, sizeof *r);
    if (!r)
        return error_set(e, ERROR_MEMORY, "no memory for a recording");
    r->params = p;
    r->options = *options;
    r->layers = p->n_layers - p->n_dense;
    struct token_bytes bytes = token_bytes(r);
    uint64_t most = bytes.plain + (options->hidden_every ? bytes.hidden : 0);
    enum error_code code = ERROR_OK;
    if (most > RECORDING_EVENT_BYTES)
        code = error_set(
            e, ERROR_LIMIT, "the routing of one token has %" PRIu64 " bytes, an event at most %u%s",
            most, RECORDING_EVENT_BYTES, options->hidden_every ? ": ask for no gate inputs" : "");
    for (r->capacity = max_tokens; r->capacity > 1; r->capacity--)
        if (r->capacity * bytes.plain + hidden_most(options, r->capacity) * bytes.hidden <=
            MAX_BYTES)
            break;
    if (!code && !allocate(r))
        code = error_set(e, ERROR_MEMORY, "no memory for a recording of %" PRIu32 " tokens",
                         r->capacity);
    if (code)
        recording_free(r);
    else
        *out = r;
    return code;
}

void recording_free(struct recording *r)
{
    if (!r)
        return;
    free(r->hidden_at);
    free(r->selected);
    free(r->gate);
    free(r->hidden);
    free(r);
}

uint32_t recording_capacity(const struct recording *r)
{
    return r->capacity;
}

/* ---- The step ---- */

void recording_begin(struct recording *r, uint32_t first, uint32_t n)
{
    r->first = first;
    r->n = n;
    r->sent = 0;
    r->n_hidden = 0;
    uint32_t before = hidden_before(&r->options, first);
    for (uint32_t i = 0; i < n; i++)
        if (hidden_before(&r->options, first + i + 1) > before + r->n_hidden)
            r->hidden_at[r->n_hidden++] = first + i;
}

void recording_layer(struct recording *r, uint32_t position, uint32_t layer,
                     const uint32_t *selected, const float *gate, const float *hidden)
{
    const struct router_params *p = &r->params->router;
    size_t with_experts = layer - r->params->n_dense;
    size_t row = (size_t)(position - r->first) * r->layers + with_experts;
    for (uint32_t k = 0; k < p->n_used; k++)
        r->selected[row * p->n_used + k] = (uint16_t)selected[k];
    if (r->gate) {
        float *out = r->gate + row * p->n_experts;
        memcpy(out, gate, p->n_experts * sizeof *out);
        if (router_leaves_logits(p->kind))
            router_logits_to_probabilities(out, 1, p->n_experts);
    }
    uint32_t index = hidden_before(&r->options, position);
    if (hidden_before(&r->options, position + 1) > index) {
        index -= hidden_before(&r->options, r->first);
        uint32_t d = r->params->d_model;
        uint16_t *out = r->hidden + ((size_t)index * r->layers + with_experts) * d;
        for (uint32_t i = 0; i < d; i++)
            out[i] = float_to_half(hidden[i]);
    }
}

/* ---- Sending ---- */

bool recording_pending(const struct recording *r)
{
    return r->sent < r->n;
}

struct recording_part recording_next(const struct recording *r)
{
    const struct router_params *p = &r->params->router;
    struct token_bytes bytes = token_bytes(r);
    uint32_t first = r->first + r->sent, left = r->n - r->sent, n = 0;
    uint32_t before = hidden_before(&r->options, first), n_hidden = 0;
    while (n < left) {
        uint32_t hidden = hidden_before(&r->options, first + n + 1) - before;
        if (n > 0 && (n + 1) * bytes.plain + hidden * bytes.hidden > RECORDING_EVENT_BYTES)
            break;
        n_hidden = hidden;
        n++;
    }
    size_t rows = (size_t)n * r->layers, at = (size_t)r->sent * r->layers;
    size_t hidden_index = before - hidden_before(&r->options, r->first);
    size_t a_hidden = (size_t)r->layers * r->params->d_model;
    return (struct recording_part){
        .first = first,
        .n = n,
        .selected = r->selected + at * p->n_used,
        .selected_values = rows * p->n_used,
        .gate = r->gate ? r->gate + at * p->n_experts : NULL,
        .gate_values = r->gate ? rows * p->n_experts : 0,
        .n_hidden = n_hidden,
        .hidden_at = n_hidden ? r->hidden_at + hidden_index : NULL,
        .hidden = n_hidden ? r->hidden + hidden_index * a_hidden : NULL,
        .hidden_values = n_hidden * a_hidden,
    };
}

void recording_sent(struct recording *r, const struct recording_part *part)
{
    r->sent += part->n;
}
