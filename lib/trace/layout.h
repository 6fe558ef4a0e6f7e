/* The layout of a trace file, version 1; docs/traces.md has it in words. Everything is little endian.
 *
 *     magic, version | chunk | chunk | ... | the end's chunk
 *
 * A chunk is its head, its payload, and zeros up to the next multiple of TRACE_ALIGN bytes of the file. They come in this
 * order: shape, layers, routers (where the shape has them), then embeddings and sequences in any order, then the end.
 * Offsets into a payload follow from counts, so none stands in the file. */
#ifndef MOED_TRACE_LAYOUT_H
#define MOED_TRACE_LAYOUT_H

#include "trace/trace.h"

enum {
    TRACE_VERSION = 1,
    TRACE_ALIGN = 64,
    TRACE_ALIGN_MEMORY = 16, /* what the file's first byte is aligned to, so that all numbers are */
    TRACE_ALL = TRACE_GATE | TRACE_EMBEDDINGS | TRACE_HIDDEN | TRACE_ROUTERS,
    TRACE_MAX_LAYERS = 1024,
    TRACE_MAX_WIDTH = 1 << 18,
    TRACE_MAX_SEGMENTS = 1 << 16,
    TRACE_GATE_ZERO = 255, /* a gate's probability that is 0 */
};

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the file is read and written as it is");

enum trace_chunk_kind {
    TRACE_CHUNK_SHAPE = 1,
    TRACE_CHUNK_LAYERS = 2,
    TRACE_CHUNK_ROUTERS = 3,
    TRACE_CHUNK_EMBEDDINGS = 4,
    TRACE_CHUNK_SEQUENCE = 5,
    TRACE_CHUNK_END = 6,
};

struct trace_file_head {
    char magic[8];
    uint32_t version;
    uint32_t zero[13];
};
_Static_assert(sizeof(struct trace_file_head) == TRACE_ALIGN, "");

struct trace_chunk_head {
    uint32_t kind, zero;
    uint64_t bytes; /* of the payload */
};
_Static_assert(sizeof(struct trace_chunk_head) == 16, "a payload is aligned to 16");

struct trace_file_shape {
    uint32_t n_layers, first_layer, n_experts, n_used, d_model, has;
    uint64_t dense_bytes;
    uint32_t router_kind; /* enum router_kind */
    uint32_t n_groups, n_groups_used;
    uint32_t renormalise; /* 0, 1 */
    float scale;
    uint32_t zero;
    char model[96]; /* NUL-terminated */
};
_Static_assert(sizeof(struct trace_file_shape) == 152, "");

/* One for each layer with experts. */
enum { TRACE_LAYER_BIAS = 1, TRACE_LAYER_SELECTION_BIAS = 2 };
struct trace_file_layer {
    uint64_t segment_bytes;
    uint32_t n_segments;
    uint32_t has; /* TRACE_LAYER_* */
};
_Static_assert(sizeof(struct trace_file_layer) == 16, "");

/* routers: float32, for each layer with experts matrix [n_experts][d_model], then bias [n_experts] and selection_bias
 * [n_experts] where the layer has them. */

/* embeddings: n, ids [n], then half precision [n][d_model]. */
struct trace_file_embeddings {
    uint32_t n;
};

/* sequence: the head; tokens [n_tokens]; the tokens whose gate inputs there are, in rising order, [n_hidden]; their
 * half-precision gate inputs [n_hidden][L][d_model]; selected [n_tokens][L][n_used], one byte each up to 256 experts, else
 * two; where the shape has TRACE_GATE, probabilities [n_tokens][L][n_experts], one byte each. L: layers with experts. */
struct trace_file_sequence {
    uint32_t n_tokens, n_prompt, n_hidden, zero;
};

struct trace_file_end {
    uint64_t n_sequences, n_tokens, n_embeddings;
};

/* Where the parts of a sequence's payload begin, and its size. */
struct trace_sequence_parts {
    uint64_t tokens, hidden_at, hidden, selected, gate, bytes;
};
/* False where it does not fit in 64 bits. */
bool trace_sequence_layout(const struct trace_shape *s, const struct trace_file_sequence *head,
                           struct trace_sequence_parts *out);

static inline uint32_t trace_layers_with_experts(const struct trace_shape *s)
{
    return s->n_layers - s->first_layer;
}

static inline uint32_t trace_choice_bytes(const struct trace_shape *s)
{
    return s->n_experts <= 256 ? 1 : 2;
}

/* Whether the numbers make sense together, and router_select can be called with them. Fills *e with what does not. */
enum error_code trace_check_shape(const struct trace_shape *s, struct error *e);
enum error_code trace_check_layer(const struct trace_shape *s, const struct trace_layer *l,
                                  struct error *e);

/* A gate's probability as it is kept: the number of 16ths of an octave below 1. */
uint8_t trace_gate_pack(float probability);

#endif
