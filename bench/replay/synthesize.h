/* Synthetic routing traces of any shape. Each token has a latent state, which is correlated between
 * tokens and between layers; gates read it.
 *
 * For a token t in layer l, where all vectors have dimension d_model and unit variance:
 *     u(t, l) = sqrt(s) topic(l) + sqrt(1 - s) x(t, l)      s: topic_strength; one topic a sequence
 *     x(t, l) = r x(t-1, l) + sqrt(1 - r^2) noise           r: locality, the correlation of neighbouring tokens
 *     h(t, 0) = u(t, 0)
 *     h(t, l) = a h(t, l-1) + sqrt(1 - a^2) u(t, l)         a: predictability, the correlation of neighbouring layers
 *     gate input = h(t, l) + drift c(l)                     c: a vector of the layer, which `residual` can find
 *     logits = sharpness (matrix(l) * gate input + skew b(l))       matrix: rows of length 1
 * The input u of each layer has the same topic strength and locality as that of layer 0. With
 * independent noise instead, deep layers would lose both. Matrices, vectors and biases b are
 * random. router_select chooses the experts. A token's id is the word of its topic whose vector is
 * closest to x(t, 0); its embedding is sqrt(s) topic(0) + sqrt(1 - s) word.
 *
 * A trace depends only on the parameters and the seed, not on the machine. bench/results/replay.md
 * shows the effect of each parameter. */
#ifndef MOED_REPLAY_SYNTHESIZE_H
#define MOED_REPLAY_SYNTHESIZE_H

#include "base/error.h"
#include "trace/trace.h"

#include <stdint.h>

enum { SYNTHESIS_WORDS = 64 }; /* token ids in a topic */

struct synthesis {
    char model[96];
    uint64_t n_layers, first_layer, n_experts, n_used;
    uint64_t n_tokens, sequence,
        prompt; /* sequence: tokens in each; prompt: how many of them are computed as one prompt */
    uint64_t first_sequence; /* number of the first sequence: another number gives another text */
    uint64_t d_model, seed, topics;
    double skew, locality, predictability, topic_strength, drift;
    uint64_t segment_bytes, n_segments, dense_bytes;
    bool renormalise;
};

/* A small shape with all members set: the start for other shapes. */
struct synthesis synthesis_default(void);
/* Sets shape and sizes of a published model; leaves the other members. False: unknown name. */
bool synthesis_like(const char *name, struct synthesis *out);
const char *synthesis_models(void); /* separated by ", " */

/* The text of ERROR_USAGE names the invalid parameter. */
enum error_code synthesis_check(const struct synthesis *s, struct error *e);
/* Checks s, and writes a trace with all optional parts. */
enum error_code synthesize(const struct synthesis *s, const char *path, struct error *e);

/* ---- Token by token ---- */

struct synthesizer;

/* s: checked by synthesis_check. Returns NULL: no memory. */
struct synthesizer *synthesizer_new(const struct synthesis *s);
void synthesizer_free(struct synthesizer *g); /* takes NULL */

struct router_params synthesis_router(const struct synthesis *s);
const struct trace_layer *synthesizer_layers(const struct synthesizer *g); /* [n_layers] */
/* Begins a sequence. Sequences may come in any order. */
void synthesizer_begin(struct synthesizer *g, uint64_t sequence);
/* Makes the next token of the sequence; returns its id. L: layers with experts. selected:
 * [L][n_used]. gate: [L][n_experts] or NULL. hidden: [L][d_model] or NULL. */
uint32_t synthesizer_next(struct synthesizer *g, uint16_t *selected, float *gate, float *hidden);
void synthesizer_embedding(const struct synthesizer *g, uint32_t id, float *embedding);

#endif
