/* A model file as trained predictors see it; see predictors_model.h. */
#include "client/cli/predictors_model.h"

#include "client/cli/ask.h"

static uint64_t hash_router(uint64_t hash, const struct trace_shape *s,
                            const struct trace_layer *layer)
{
    return trained_hash(hash, layer->matrix, (size_t)s->n_experts * s->d_model * sizeof(float));
}

static struct trained_model describe(const struct trace_shape *s)
{
    return (struct trained_model){.name = s->model,
                                  .shape = {.n_layers = s->n_layers,
                                            .first_layer = s->first_layer,
                                            .n_experts = s->n_experts,
                                            .n_used = s->n_used,
                                            .d_model = s->d_model}};
}

bool predictors_model_open(const char *path, struct predictors_model *out)
{
    struct error e;
    *out = (struct predictors_model){0};
    if (gguf_open(path, &out->g, &e) || trace_model_read(out->g, &out->facts, &e)) {
        cli_complain("%s", e.text);
        predictors_model_close(out);
        return false;
    }
    const struct trace_shape *s = &out->facts.shape;
    out->model = describe(s);
    for (uint32_t i = s->first_layer; i < s->n_layers; i++)
        out->model.routers = hash_router(out->model.routers, s, &out->facts.layers[i]);
    return true;
}

void predictors_model_close(struct predictors_model *m)
{
    trace_model_fini(&m->facts);
    gguf_close(m->g);
    *m = (struct predictors_model){0};
}

struct trained_model predictors_model_of_trace(const struct trace *trace)
{
    const struct trace_shape *s = trace_shape(trace);
    struct trained_model model = describe(s);
    for (uint32_t i = s->first_layer; s->has & TRACE_ROUTERS && i < s->n_layers; i++)
        model.routers = hash_router(model.routers, s, trace_layer(trace, i));
    return model;
}
