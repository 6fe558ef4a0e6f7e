/* The tokens of a trace for training: those whose gate inputs the trace has. They form three parts
 * that share no sequence:
 *   - held out: a tenth, only for judging ("a 9:1 ratio", ProMoE);
 *   - check: a tenth of the rest; calibrates the networks and decides when to stop;
 *   - train: the remaining tokens.
 * Held out and check are runs of sequences in the order of the trace, one after the other. A
 * document's sequences lie side by side, so the parts share at most the documents at the three ends
 * of the runs. The seed chooses where they begin. If a trace has too few sequences, each sequence
 * is cut into the three parts. */
#ifndef MOED_TRAIN_SAMPLES_H
#define MOED_TRAIN_SAMPLES_H

#include "trace/trace.h"

#include <stdbool.h>

struct sample {
    uint32_t sequence, token;
};

struct samples {
    const struct trace *trace; /* borrowed */
    struct sample *rows;       /* [n]: n_train to train, n_check to check, the rest held out */
    uint32_t n, n_train, n_check;
};

/* ERROR_UNSUPPORTED: the trace has too few gate inputs. */
enum error_code samples_new(const struct trace *trace, uint64_t seed, struct samples *out,
                            struct error *e);
void samples_free(struct samples *s);

/* Reads rows [first, first + n) of a layer. hidden: [n][d_model]; selected: [n][n_used]; gate:
 * [n][n_experts]. Each may be NULL. */
void samples_read(const struct samples *s, uint32_t layer, uint32_t first, uint32_t n,
                  float *hidden, uint32_t *selected, float *gate);

/* Statistics of the layers over the rows for training. */
struct sample_facts {
    uint32_t n_layers, d_model, n_experts;
    double *mean, *deviation; /* [n_layers][d_model], of the gate input; a deviation is never 0 */
    double *similarity; /* [n_layers]: the mean cosine between the gate inputs of the layer and of
                           the previous layer */
    double *skew;     /* [n_layers]: the mean share of a token's first choice in its gate weights; 0
                         without gates */
    uint64_t *counts; /* [n_layers][n_experts]: activations */
    void *memory;     /* of mean, deviation and counts */
};
/* go_on: called now and then; false: stop with ERROR_CANCELLED. May be NULL. */
enum error_code sample_facts_new(const struct samples *s, bool (*go_on)(void *arg), void *arg,
                                 struct sample_facts *out, struct error *e);
void sample_facts_free(struct sample_facts *f);

#endif
