/* Checks of a trace that need no worker, for profile.sh:
 *
 *   trace-check gates TRACE    each recorded choice against the gate computed anew from the trace's own matrix and gate input
 *   trace-check same A B       the choices of the same tokens in two traces
 *
 * Both print the share of (token, layer) pairs that agree, as a set of experts, and how many there
 * are: "0.9987 12345". The gates' probabilities are compared where the choices are: the largest
 * factor between them, in octaves, is the third number. */
#include "kernels/kernels.h"
#include "model/router.h"
#include "trace/trace.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct tally {
    uint64_t same, all;
    double octaves; /* between probabilities, the most */
};

static void *need(void *memory)
{
    if (!memory) {
        fprintf(stderr, "no memory\n");
        exit(1);
    }
    return memory;
}

static struct trace *open_trace(const char *path)
{
    struct trace *t;
    struct error e;
    if (trace_open(path, &t, &e)) {
        fprintf(stderr, "%s\n", e.text);
        exit(1);
    }
    return t;
}

static int compare(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static bool same_set(uint32_t *a, uint32_t *b, uint32_t n)
{
    qsort(a, n, sizeof *a, compare);
    qsort(b, n, sizeof *b, compare);
    return memcmp(a, b, n * sizeof *a) == 0;
}

/* Only probabilities that are not too small for the file. */
static void compare_gates(struct tally *tally, const float *a, const float *b, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (a[i] > 1e-4f || b[i] > 1e-4f)
            tally->octaves = fmax(tally->octaves, fabs(log2((double)a[i] / (double)b[i])));
}

/* ---- gates ---- */

struct gate {
    float *hidden, *logits, *recorded, *weights;
    uint32_t *computed, *selected;
};

/* In double precision, in order, independent of the worker's arithmetic. */
static void compute_gate(const struct trace_shape *s, const struct trace_layer *l, struct gate *g)
{
    for (uint32_t i = 0; i < s->n_experts; i++) {
        double sum = l->bias ? l->bias[i] : 0;
        for (uint32_t k = 0; k < s->d_model; k++)
            sum += (double)l->matrix[(size_t)i * s->d_model + k] * (double)g->hidden[k];
        g->logits[i] = (float)sum;
    }
    router_select(&s->router, g->logits, l->selection_bias, g->computed, g->weights);
    if (router_leaves_logits(s->router.kind))
        router_logits_to_probabilities(g->logits, 1, s->n_experts);
}

static void check_token(const struct trace *t, uint32_t q, uint32_t token, struct gate *g,
                        struct tally *tally)
{
    const struct trace_shape *s = trace_shape(t);
    for (uint32_t l = s->first_layer; l < s->n_layers; l++) {
        if (!trace_hidden(t, q, token, l, g->hidden)) {
            fprintf(stderr, "a token without gate inputs is listed\n");
            exit(1);
        }
        compute_gate(s, trace_layer(t, l), g);
        trace_selected(t, q, token, l, g->selected);
        if (trace_gate(t, q, token, l, g->recorded))
            compare_gates(tally, g->logits, g->recorded, s->n_experts);
        tally->same += same_set(g->computed, g->selected, s->n_used);
        tally->all++;
    }
}

static void check_gates(const struct trace *t, struct tally *tally)
{
    const struct trace_shape *s = trace_shape(t);
    struct gate g = {.hidden = need(malloc(s->d_model * sizeof(float))),
                     .logits = need(malloc(s->n_experts * sizeof(float))),
                     .recorded = need(malloc(s->n_experts * sizeof(float))),
                     .weights = need(malloc(s->n_used * sizeof(float))),
                     .computed = need(malloc(s->n_used * sizeof(uint32_t))),
                     .selected = need(malloc(s->n_used * sizeof(uint32_t)))};
    if (!(s->has & TRACE_ROUTERS)) {
        fprintf(stderr, "the trace has no routers\n");
        exit(1);
    }
    for (uint32_t q = 0; q < trace_sequences(t); q++) {
        uint32_t n;
        const uint32_t *at = trace_hidden_tokens(t, q, &n);
        for (uint32_t i = 0; i < n; i++)
            check_token(t, q, at[i], &g, tally);
    }
    free(g.hidden);
    free(g.logits);
    free(g.recorded);
    free(g.weights);
    free(g.computed);
    free(g.selected);
}

/* ---- same ---- */

static void require_same(bool same, const char *what)
{
    if (same)
        return;
    fprintf(stderr, "the traces differ in %s\n", what);
    exit(1);
}

static void compare_sequence(const struct trace *a, const struct trace *b, uint32_t q,
                             struct tally *tally)
{
    const struct trace_shape *s = trace_shape(a);
    const struct trace_sequence *x = trace_sequence(a, q), *y = trace_sequence(b, q);
    uint32_t *in_a = need(malloc(s->n_used * sizeof *in_a));
    uint32_t *in_b = need(malloc(s->n_used * sizeof *in_b));
    float *gate_a = need(malloc(s->n_experts * sizeof *gate_a));
    float *gate_b = need(malloc(s->n_experts * sizeof *gate_b));
    require_same(x->n_tokens == y->n_tokens && x->n_prompt == y->n_prompt &&
                     memcmp(x->tokens, y->tokens, x->n_tokens * sizeof *x->tokens) == 0,
                 "their tokens");
    for (uint32_t i = 0; i < x->n_tokens; i++)
        for (uint32_t l = s->first_layer; l < s->n_layers; l++) {
            trace_selected(a, q, i, l, in_a);
            trace_selected(b, q, i, l, in_b);
            if (trace_gate(a, q, i, l, gate_a) && trace_gate(b, q, i, l, gate_b))
                compare_gates(tally, gate_a, gate_b, s->n_experts);
            tally->same += same_set(in_a, in_b, s->n_used);
            tally->all++;
        }
    free(in_a);
    free(in_b);
    free(gate_a);
    free(gate_b);
}

static void compare_traces(const struct trace *a, const struct trace *b, struct tally *tally)
{
    const struct trace_shape *s = trace_shape(a), *other = trace_shape(b);
    require_same(s->n_layers == other->n_layers && s->first_layer == other->first_layer &&
                     s->n_experts == other->n_experts && s->n_used == other->n_used,
                 "their shape");
    require_same(trace_sequences(a) == trace_sequences(b), "their number of sequences");
    for (uint32_t q = 0; q < trace_sequences(a); q++)
        compare_sequence(a, b, q, tally);
}

int main(int argc, char **argv)
{
    struct tally tally = {0};
    bool gates = argc == 3 && strcmp(argv[1], "gates") == 0;
    if (!gates && !(argc == 4 && strcmp(argv[1], "same") == 0)) {
        fprintf(stderr, "usage: trace-check gates TRACE | same A B\n");
        return 2;
    }
    struct trace *a = open_trace(argv[2]), *b = gates ? NULL : open_trace(argv[3]);
    if (gates)
        check_gates(a, &tally);
    else
        compare_traces(a, b, &tally);
    if (tally.all == 0) {
        fprintf(stderr, "there is nothing to compare\n");
        return 1;
    }
    printf("%.6f %" PRIu64 " %.4f\n", (double)tally.same / (double)tally.all, tally.all,
           tally.octaves);
    trace_close(a);
    trace_close(b);
    return 0;
}
