/* The tokens of a trace that training is on: those whose gate inputs were kept, cut by sequence into three parts that share no
 * sequence: a tenth is held out, to be judged on alone ("a 9:1 ratio", ProMoE); of the others a tenth calibrates what was
 * trained and says when to stop, and training is on the rest. A trace of too few sequences for that is cut inside each one. */
#ifndef MOED_TRAIN_SAMPLES_H
#define MOED_TRAIN_SAMPLES_H

#include "trace/trace.h"

struct sample {
    uint32_t sequence, token;
};

struct samples {
    const struct trace *trace;    /* borrowed */
    struct sample *rows;          /* [n]: those trained on, those that calibrate, those held out */
    uint32_t n, n_train, n_check; /* n_check: that calibrate */
};

/* ERROR_UNSUPPORTED where the trace has no gate inputs or hardly any. */
enum error_code samples_new(const struct trace *trace, uint64_t seed, struct samples *out,
                            struct error *e);
void samples_free(struct samples *s);

/* Of a layer, for rows [first, first + n). hidden: [n][d_model]; selected: [n][n_used]; gate: [n][n_experts]; each may be
 * NULL. */
void samples_read(const struct samples *s, uint32_t layer, uint32_t first, uint32_t n,
                  float *hidden, uint32_t *selected, float *gate);

/* What is known of the layers from the rows trained on. */
struct sample_facts {
    uint32_t n_layers, d_model, n_experts;
    double *mean, *deviation; /* [n_layers][d_model], of the gate's input; a deviation is never 0 */
    double *
        similarity; /* [n_layers]: the mean cosine of the layer's gate input and that of the one before */
    double *
        skew; /* [n_layers]: the mean share of a token's first choice in its gate weights; 0 without gates */
    uint64_t *counts; /* [n_layers][n_experts]: activations */
};
enum error_code sample_facts_new(const struct samples *s, struct sample_facts *out,
                                 struct error *e);
void sample_facts_free(struct sample_facts *f);

#endif
