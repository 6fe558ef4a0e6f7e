/* Made-up routing traces of any shape: a latent state a token, that layers and tokens pass on, and gates that read it.
 *
 * Of a token t in layer l, all of dimension d_model and all parts of unit variance:
 *     u(t, l) = sqrt(s) topic(l) + sqrt(1 - s) x(t, l)      s: topic_strength; topic: the sequence's
 *     x(t, l) = r x(t-1, l) + sqrt(1 - r^2) noise           r: locality, the correlation of neighbouring tokens
 *     h(t, 0) = u(t, 0)
 *     h(t, l) = a h(t, l-1) + sqrt(1 - a^2) u(t, l)         a: predictability, the correlation of neighbouring layers
 *     gate input = h(t, l) + drift c(l)                     c: a layer's own vector, what `residual` learns
 *     logits = sharpness (matrix(l) * gate input + skew b(l))       matrix: rows of length 1
 * What a layer adds, u, has the topic and the locality of the first: fresh noise would leave deep layers without either.
 * Matrices, vectors and biases b are random; the choice is router_select's. A token's id is the word of its topic whose vector
 * is most like x(t, 0), its embedding sqrt(s) topic(0) + sqrt(1 - s) word.
 *
 * Everything follows from the seed, on any machine. docs/replay.md says what the parameters do to a trace. */
#ifndef MOED_REPLAY_SYNTHESIZE_H
#define MOED_REPLAY_SYNTHESIZE_H

#include "base/error.h"
#include "trace/trace.h"

#include <stdint.h>

enum { SYNTHESIS_WORDS = 64 }; /* token ids of a topic */

struct synthesis {
    char model[96];
    uint64_t n_layers, first_layer, n_experts, n_used;
    uint64_t n_tokens, sequence,
        prompt;              /* sequence: tokens of each; prompt: of those, computed together */
    uint64_t first_sequence; /* of the model's: another one, other text */
    uint64_t d_model, seed, topics;
    double skew, locality, predictability, topic_strength, drift;
    uint64_t segment_bytes, n_segments, dense_bytes;
    bool renormalise;
};

/* A small shape with everything set; what others begin with. */
struct synthesis synthesis_default(void);
/* Shape and bytes of a published model, the rest left alone. False: there is none of this name. */
bool synthesis_like(const char *name, struct synthesis *out);
const char *synthesis_models(void); /* separated by ", " */

/* ERROR_USAGE names what makes no sense. */
enum error_code synthesis_check(const struct synthesis *s, struct error *e);
/* Checks, and writes a trace with everything that traces can have. */
enum error_code synthesize(const struct synthesis *s, const char *path, struct error *e);

/* ---- Token by token ---- */

struct synthesizer;

/* Of a checked synthesis. NULL: no memory. */
struct synthesizer *synthesizer_new(const struct synthesis *s);
void synthesizer_free(struct synthesizer *g); /* takes NULL */

struct router_params synthesis_router(const struct synthesis *s);
const struct trace_layer *synthesizer_layers(const struct synthesizer *g); /* [n_layers] */
/* The sequence of this number begins; any order. */
void synthesizer_begin(struct synthesizer *g, uint64_t sequence);
/* Its next token; returns the id. L: layers with experts. selected: [L][n_used]; gate: [L][n_experts], hidden: [L][d_model],
 * each may be NULL. */
uint32_t synthesizer_next(struct synthesizer *g, uint16_t *selected, float *gate, float *hidden);
void synthesizer_embedding(const struct synthesizer *g, uint32_t id, float *embedding);

#endif
