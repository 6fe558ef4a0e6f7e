/* A model's facts for a trace; see trace_model.h. */
#include "trace/trace_model.h"

#include "model/pool_plan.h"
#include "quant/quant.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct gguf_tensor *block_tensor(const struct gguf *g, uint32_t block,
                                              const char *part)
{
    char name[GGUF_NAME_BYTES];
    snprintf(name, sizeof name, "blk.%" PRIu32 ".%s", block, part);
    return gguf_tensor_find(g, name);
}

/* The n values of a tensor; the plan has checked their number. NULL without a tensor. */
static const float *take(struct trace_model *m, const struct gguf_tensor *t, size_t n, size_t *used)
{
    if (!t)
        return NULL;
    float *values = m->numbers + *used;
    quant_dequantize(t->type, gguf_tensor_data(m->g, t), values, n);
    *used += n;
    return values;
}

static enum error_code read_layers(struct trace_model *m, const struct pool_plan *plan,
                                   const char *selection_bias, struct error *e)
{
    const struct trace_shape *s = &m->shape;
    size_t matrix = (size_t)s->n_experts * s->d_model, used = 0;
    m->layers = calloc(s->n_layers, sizeof *m->layers);
    m->numbers = malloc((s->n_layers - s->first_layer) * (matrix + 2ull * s->n_experts) *
                        sizeof *m->numbers);
    if (!m->layers || !m->numbers)
        return error_set(e, ERROR_MEMORY, "no memory for the routers of %" PRIu32 " layers",
                         s->n_layers);
    for (uint32_t i = s->first_layer; i < s->n_layers; i++) {
        uint32_t block = plan->header.params.layers[i].blocks.feed_forward;
        struct trace_layer *l = &m->layers[i];
        l->n_segments = plan->slabs[i].n_segments;
        l->segment_bytes = plan->slabs[i].segment_bytes;
        l->matrix = take(m, block_tensor(m->g, block, "ffn_gate_inp.weight"), matrix, &used);
        l->bias = take(m, block_tensor(m->g, block, "ffn_gate_inp.bias"), s->n_experts, &used);
        if (selection_bias)
            l->selection_bias =
                take(m, block_tensor(m->g, block, selection_bias), s->n_experts, &used);
    }
    return ERROR_OK;
}

static void fill_shape(struct trace_model *m, const struct model_params *p)
{
    m->vocab = p->vocab;
    m->shape = (struct trace_shape){.n_layers = p->n_layers,
                                    .first_layer = p->n_dense,
                                    .n_experts = p->router.n_experts,
                                    .n_used = p->router.n_used,
                                    .d_model = p->d_model,
                                    .has = TRACE_ROUTERS | TRACE_EMBEDDINGS,
                                    .router = p->router};
    memcpy(m->shape.model, p->name, sizeof m->shape.model);
}

enum error_code trace_model_read(const struct gguf *g, struct trace_model *out, struct error *e)
{
    struct trace_model m = {.g = g};
    struct model_params params;
    struct pool_plan plan = {0};
    enum error_code code = pool_plan_new(g, &plan, e);
    if (!code)
        code = model_params_read(g, &params, e);
    if (!code) {
        fill_shape(&m, &params);
        m.shape.dense_bytes = pool_plan_dense_token_bytes(&plan);
        m.embedding = gguf_tensor_find(g, "token_embd.weight");
        code = read_layers(&m, &plan, architecture_selection_bias(params.arch), e);
    }
    pool_plan_free(&plan);
    if (code)
        trace_model_fini(&m);
    else
        *out = m;
    return code;
}

void trace_model_fini(struct trace_model *m)
{
    free(m->layers);
    free(m->numbers);
    *m = (struct trace_model){0};
}

void trace_model_embedding(const struct trace_model *m, uint32_t id, float *embedding)
{
    uint32_t d = m->shape.d_model;
    const uint8_t *rows = gguf_tensor_data(m->g, m->embedding);
    quant_dequantize(m->embedding->type, rows + id * quant_row_bytes(m->embedding->type, d),
                     embedding, d);
}
