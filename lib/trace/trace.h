/* Routing traces: the experts that a model's layers chose for the tokens of real or made-up text,
 * and the inputs of the predictors. `moed profile` and `moed-replay --synthesize` write traces,
 * `moed-replay` and `moed train` read them. docs/traces.md describes the file.
 *
 * A trace is a list of sequences (documents, conversations). A sequence is a list of tokens: the
 * first n_prompt are computed together, the others one after the other. A trace does not record how
 * sequences share a batch; the replay decides that.
 *
 * A trace file is input: trace_open checks everything that the functions below rely on. Every
 * number that they return is finite. Layers, sequences and tokens that the caller passes must be in
 * range, and the layer must have experts. */
#ifndef MOED_TRACE_TRACE_H
#define MOED_TRACE_TRACE_H

#include "base/error.h"
#include "model/params.h"

#include <stdbool.h>
#include <stdint.h>

/* The first bytes of a trace file. */
#define TRACE_MAGIC "moedtrac"

/* The optional parts of a trace; bits of trace_shape.has. */
enum {
    /* the gate's probabilities, in steps of a 16th of an octave; 0 below 2^-15.9 */
    TRACE_GATE = 1,
    /* the embedding layer's output for each distinct token, in half precision */
    TRACE_EMBEDDINGS = 2,
    /* the gate inputs of some tokens, in half precision */
    TRACE_HIDDEN = 4,
    /* the gates' matrices and biases, in single precision */
    TRACE_ROUTERS = 8,
};

struct trace_shape {
    char model[96];                 /* the model's name */
    uint32_t n_layers, first_layer; /* layers before first_layer have no experts */
    uint32_t n_experts, n_used, d_model;
    uint64_t dense_bytes; /* of weights that every token reads, without the routed experts */
    uint32_t has;
    struct router_params router;
};

/* A layer with experts. */
struct trace_layer {
    uint32_t n_segments; /* of an expert */
    uint64_t segment_bytes;
    /* NULL without TRACE_ROUTERS */
    const float *matrix;         /* [n_experts][d_model] */
    const float *bias;           /* [n_experts], or NULL: added to the logits */
    const float *selection_bias; /* [n_experts], or NULL: see router_select */
};

struct trace_sequence {
    uint32_t n_tokens, n_prompt;
    const uint32_t *tokens; /* [n_tokens] ids */
};

/* ---- Reading ---- */

struct trace;

enum error_code trace_open(const char *path, struct trace **out, struct error *e);
/* The same for the bytes of a file. Borrows them: they must outlive the trace. */
enum error_code trace_open_bytes(const void *bytes, size_t n, struct trace **out, struct error *e);
void trace_close(struct trace *t); /* takes NULL */

const struct trace_shape *trace_shape(const struct trace *t);
const struct trace_layer *trace_layer(const struct trace *t, uint32_t layer);
uint32_t trace_sequences(const struct trace *t);
const struct trace_sequence *trace_sequence(const struct trace *t, uint32_t sequence);
uint64_t trace_tokens(const struct trace *t); /* of all sequences */
/* The number of distinct tokens with an embedding. */
uint32_t trace_embeddings(const struct trace *t);
/* The tokens of a sequence whose gate inputs the trace has, ascending. *n: their number. */
const uint32_t *trace_hidden_tokens(const struct trace *t, uint32_t sequence, uint32_t *n);
/* The bytes of each part in the file. */
struct trace_part_bytes {
    uint64_t tokens, selected, gate, hidden, embeddings, routers;
};
struct trace_part_bytes trace_part_bytes(const struct trace *t);

/* The experts that the layer chose for the token, [n_used], the first choice first. */
void trace_selected(const struct trace *t, uint32_t sequence, uint32_t token, uint32_t layer,
                    uint32_t *selected);
/* The gate's probabilities, [n_experts]. False without TRACE_GATE. */
bool trace_gate(const struct trace *t, uint32_t sequence, uint32_t token, uint32_t layer,
                float *probability);
/* The gate input, [d_model]. False: the trace lacks this token's. It has the gate inputs of a token
 * for all layers or for none. */
bool trace_hidden(const struct trace *t, uint32_t sequence, uint32_t token, uint32_t layer,
                  float *hidden);
bool trace_embedding(const struct trace *t, uint32_t id, float *embedding); /* [d_model] */

/* ---- Writing ---- */

struct trace_writer;

/* shape.has: the parts that the caller will write. layers: [n_layers]; entries before first_layer
 * are not read. trace_writer_finish creates the file atomically, readable by its owner only: a
 * trace holds the tokens of its texts. */
enum error_code trace_writer_new(const char *path, const struct trace_shape *shape,
                                 const struct trace_layer *layers, struct trace_writer **out,
                                 struct error *e);
/* Writes the embedding of a token id. Ignores an id that it has already. */
enum error_code trace_write_embedding(struct trace_writer *w, uint32_t id, const float *embedding,
                                      struct error *e);

bool trace_writer_has_embedding(const struct trace_writer *w, uint32_t id);

/* A sequence to write. L = n_layers - first_layer: the layers with experts, in order. */
struct trace_data {
    struct trace_sequence sequence;
    const uint16_t *selected;   /* [n_tokens][L][n_used] */
    const float *gate;          /* [n_tokens][L][n_experts], or NULL without TRACE_GATE */
    const float *const *hidden; /* [n_tokens] pointers to [L][d_model], NULL for a token without
                                   gate inputs; NULL without TRACE_HIDDEN */
};
enum error_code trace_write_sequence(struct trace_writer *w, const struct trace_data *data,
                                     struct error *e);
/* Frees w. After a failed write, as on a full disk, the file ends with the last sequence that was
 * written completely; an error where there is none. */
enum error_code trace_writer_finish(struct trace_writer *w, struct error *e);
void trace_writer_abandon(struct trace_writer *w); /* frees w, leaves no file; takes NULL */

#endif
