/* Routing traces: which experts a model's layers chose for the tokens of real or made-up text, with what the predictors read.
 * Written by `moed profile` and `moed-replay --synthesize`, read by `moed-replay` and `moed train`. docs/traces.md has the
 * layout of the file.
 *
 * A trace is a list of sequences (documents, conversations); a sequence is a list of tokens, of which the first n_prompt are
 * computed together and the others one after the other. How sequences share a batch is not recorded: who replays decides.
 *
 * A trace file is input: trace_open checks everything that the functions below rely on, and every number that they give is
 * finite. Indices (layer, sequence, token) are the caller's: they must be in range, a layer one with experts.
 */
#ifndef MOED_TRACE_TRACE_H
#define MOED_TRACE_TRACE_H

#include "base/error.h"
#include "model/params.h"

#include <stdbool.h>
#include <stdint.h>

/* A trace file begins with it. */
#define TRACE_MAGIC "moedtrac"

/* What a trace has beside the choices; bits of trace_shape.has. */
enum {
    TRACE_GATE =
        1, /* the gate's probabilities, in steps of a 16th of an octave; below 2^-15.9 they are 0 */
    TRACE_EMBEDDINGS =
        2,             /* the embedding layer's output for each distinct token, in half precision */
    TRACE_HIDDEN = 4,  /* the gates' inputs of some of the tokens, in half precision */
    TRACE_ROUTERS = 8, /* the gates' matrices and biases, in single precision */
};

struct trace_shape {
    char model[96];                 /* its name, in words */
    uint32_t n_layers, first_layer; /* those before first_layer have no experts */
    uint32_t n_experts, n_used, d_model;
    uint64_t dense_bytes; /* of weights that every token reads beside the routed experts */
    uint32_t has;
    struct router_params router;
};

/* Of a layer with experts. */
struct trace_layer {
    uint32_t n_segments; /* of an expert */
    uint64_t segment_bytes;
    /* NULL without TRACE_ROUTERS */
    const float *matrix;         /* [n_experts][d_model] */
    const float *bias;           /* [n_experts], or NULL: added to the logits */
    const float *selection_bias; /* [n_experts], or NULL: as router_select takes it */
};

struct trace_sequence {
    uint32_t n_tokens, n_prompt;
    const uint32_t *tokens; /* [n_tokens] ids */
};

/* ---- Reading ---- */

struct trace;

enum error_code trace_open(const char *path, struct trace **out, struct error *e);
/* The same of a file's bytes, which stay the caller's and must outlive it. */
enum error_code trace_open_bytes(const void *bytes, size_t n, struct trace **out, struct error *e);
void trace_close(struct trace *t); /* takes NULL */

const struct trace_shape *trace_shape(const struct trace *t);
const struct trace_layer *trace_layer(const struct trace *t, uint32_t layer);
uint32_t trace_sequences(const struct trace *t);
const struct trace_sequence *trace_sequence(const struct trace *t, uint32_t sequence);
uint64_t trace_tokens(const struct trace *t); /* of all sequences */
/* Distinct tokens with an embedding. */
uint32_t trace_embeddings(const struct trace *t);
/* The tokens of a sequence whose gate inputs were kept, in rising order; their number is *n. */
const uint32_t *trace_hidden_tokens(const struct trace *t, uint32_t sequence, uint32_t *n);
/* What the parts take of the file. */
struct trace_part_bytes {
    uint64_t tokens, selected, gate, hidden, embeddings, routers;
};
struct trace_part_bytes trace_part_bytes(const struct trace *t);

/* Of one token in a layer with experts. The choice, [n_used], the first one first. */
void trace_selected(const struct trace *t, uint32_t sequence, uint32_t token, uint32_t layer,
                    uint32_t *selected);
/* [n_experts]; false without TRACE_GATE. */
bool trace_gate(const struct trace *t, uint32_t sequence, uint32_t token, uint32_t layer,
                float *probability);
/* The gate's input, [d_model]; false where this token's were not kept (a token has those of all layers or of none). */
bool trace_hidden(const struct trace *t, uint32_t sequence, uint32_t token, uint32_t layer,
                  float *hidden);
bool trace_embedding(const struct trace *t, uint32_t id, float *embedding); /* [d_model] */

/* ---- Writing ---- */

struct trace_writer;

/* shape.has says what will be given. layers: [n_layers]; those before first_layer are not read. The file is there whole,
 * after trace_writer_finish, or not at all. */
enum error_code trace_writer_new(const char *path, const struct trace_shape *shape,
                                 const struct trace_layer *layers, struct trace_writer **out,
                                 struct error *e);
/* Once for each distinct token id; again is ignored. */
enum error_code trace_write_embedding(struct trace_writer *w, uint32_t id, const float *embedding,
                                      struct error *e);

bool trace_writer_has_embedding(const struct trace_writer *w, uint32_t id);

/* A sequence's tokens, [n_tokens], each with the layers that have experts, in order: L = n_layers - first_layer. */
struct trace_data {
    struct trace_sequence sequence;
    const uint16_t *selected; /* [n_tokens][L][n_used] */
    const float *gate;        /* [n_tokens][L][n_experts], or NULL without TRACE_GATE */
    const float *const *
        hidden; /* [n_tokens] to [L][d_model], NULL where a token's are not kept; NULL without TRACE_HIDDEN */
};
enum error_code trace_write_sequence(struct trace_writer *w, const struct trace_data *data,
                                     struct error *e);
enum error_code trace_writer_finish(struct trace_writer *w, struct error *e); /* frees it */
void trace_writer_abandon(struct trace_writer *w); /* takes NULL; nothing is left */

#endif
