/* An open trace, private to lib/trace: open.c makes it, read.c reads it. */
#ifndef MOED_TRACE_READ_H
#define MOED_TRACE_READ_H

#include "base/file_map.h"
#include "trace/layout.h"

struct sequence_index {
    struct trace_sequence public;
    uint32_t n_hidden;
    const uint32_t *hidden_at; /* [n_hidden], ascending */
    const uint16_t *hidden;
    const uint8_t *selected, *gate;
};

struct embedding_index {
    uint32_t id; /* the first member: compare_ids relies on it */
    const uint16_t *halves;
};

struct trace {
    struct file_map map;
    void *copy; /* of unaligned bytes, or NULL */
    struct trace_shape shape;
    struct trace_layer *layers; /* [n_layers] */
    struct sequence_index *sequences;
    struct embedding_index *embeddings; /* by id */
    uint32_t n_sequences, n_embeddings, capacity_sequences, capacity_embeddings;
    uint64_t n_tokens;
    struct trace_part_bytes parts;
    float gate_values[256];
};

#endif
