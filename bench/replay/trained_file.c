/* Opens trained predictors for a trace; see trained_file.h. */
#include "bench/replay/trained_file.h"

struct predict_shape trained_file_shape(const struct trace *t)
{
    const struct trace_shape *s = trace_shape(t);
    return (struct predict_shape){.n_layers = s->n_layers,
                                  .first_layer = s->first_layer,
                                  .n_experts = s->n_experts,
                                  .n_used = s->n_used,
                                  .d_model = s->d_model};
}

/* Computed as in trained predictors; 0: the trace has no routers. */
static uint64_t hash_routers(const struct trace *t)
{
    const struct trace_shape *s = trace_shape(t);
    uint64_t hash = 0;
    for (uint32_t l = s->first_layer; s->has & TRACE_ROUTERS && l < s->n_layers; l++)
        hash = trained_hash(hash, trace_layer(t, l)->matrix,
                            (size_t)s->n_experts * s->d_model * sizeof(float));
    return hash;
}

enum error_code trained_file_open(const char *path, const struct trace *t, struct trained_file *out,
                                  struct error *e)
{
    char why[TRAINED_WHY];
    const struct trained_model model = {
        .name = trace_shape(t)->model, .shape = trained_file_shape(t), .routers = hash_routers(t)};
    enum error_code code = file_map_open(path, "a file of `moed train`", &out->map, e);
    if (!code && (!trained_view(out->map.data, out->map.bytes, &out->view, why) ||
                  !trained_fits(&out->view, &model, why)))
        code = error_set(e, ERROR_FORMAT, "%.200s: %s", path, why);
    return code;
}

void trained_file_close(struct trained_file *f)
{
    file_map_close(&f->map);
}
