/* The layout of a trace file, version 1; docs/traces.md describes it. All numbers are little
 * endian.
 *
 *     magic, version | chunk | chunk | ... | the end's chunk
 *
 * A chunk has a head, a payload, and zeros up to the next multiple of TRACE_ALIGN bytes of the
 * file. The order of chunks: shape; layers; routers, if the shape has them; embeddings and
 * sequences in any order; end. The file stores no offsets into a payload: they follow from the
 * counts. */
#ifndef MOED_TRACE_LAYOUT_H
#define MOED_TRACE_LAYOUT_H

#include "trace/trace.h"

enum {
    TRACE_VERSION = 1,
    TRACE_ALIGN = 64,
    TRACE_ALIGN_MEMORY = 16, /* of the file in memory, so that all numbers are aligned */
    TRACE_ALL = TRACE_GATE | TRACE_EMBEDDINGS | TRACE_HIDDEN | TRACE_ROUTERS,
    TRACE_MAX_LAYERS = 1024,
    TRACE_MAX_WIDTH = 1 << 18,
    TRACE_MAX_SEGMENTS = 1 << 16,
    TRACE_GATE_ZERO = 255, /* the code of a probability of 0 */
};

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "the code reads and writes whole structs");

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

/* routers: float32. For each layer with experts: matrix [n_experts][d_model], then bias [n_experts]
 * and selection_bias [n_experts] if the layer has them. */

/* embeddings: n, ids [n], then half precision [n][d_model]. */
struct trace_file_embeddings {
    uint32_t n;
};

/* sequence, with L layers with experts:
 *     this head
 *     tokens         [n_tokens]
 *     tokens with gate inputs, ascending   [n_hidden]
 *     gate inputs    [n_hidden][L][d_model], half precision
 *     selected       [n_tokens][L][n_used], one byte each up to 256 experts, else two
 *     probabilities  [n_tokens][L][n_experts], one byte each, if the shape has TRACE_GATE */
struct trace_file_sequence {
    uint32_t n_tokens, n_prompt, n_hidden, zero;
};

struct trace_file_end {
    uint64_t n_sequences, n_tokens, n_embeddings;
};

/* The offsets of the parts in a sequence's payload, and the payload's size. */
struct trace_sequence_parts {
    uint64_t tokens, hidden_at, hidden, selected, gate, bytes;
};
/* False: the size does not fit in 64 bits. */
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

/* Check that the values are possible and consistent and that router_select accepts them. *e names
 * the wrong value. */
enum error_code trace_check_shape(const struct trace_shape *s, struct error *e);
enum error_code trace_check_layer(const struct trace_shape *s, const struct trace_layer *l,
                                  struct error *e);

/* The code of a gate's probability: the number of 16ths of an octave below 1. */
uint8_t trace_gate_pack(float probability);

#endif
