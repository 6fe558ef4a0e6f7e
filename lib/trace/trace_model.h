/* Reads a trace's description of a model from the model file: shape, segments, routers, embeddings.
 */
#ifndef MOED_TRACE_TRACE_MODEL_H
#define MOED_TRACE_TRACE_MODEL_H

#include "gguf/gguf.h"
#include "trace/trace.h"

struct trace_model {
    struct trace_shape shape; /* has: TRACE_ROUTERS and TRACE_EMBEDDINGS; the caller adds others */
    struct trace_layer *layers; /* [n_layers] */
    uint32_t vocab;
    /* private */
    float *numbers; /* of the routers */
    const struct gguf *g;
    const struct gguf_tensor *embedding;
};

/* Errors: see pool_plan_new. Borrows g. */
enum error_code trace_model_read(const struct gguf *g, struct trace_model *out, struct error *e);
void trace_model_fini(struct trace_model *m); /* takes a zeroed one */

/* The embedding layer's output for a token below vocab, [d_model]. */
void trace_model_embedding(const struct trace_model *m, uint32_t id, float *embedding);

#endif
