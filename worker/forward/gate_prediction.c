/* The gates of coming layers, evaluated for predicted inputs while a layer's experts are computed:
 * the prefetcher's source. */
#include "forward_internal.h"

#include "model/router.h"

#include <math.h>

const float *forward_norm_gate(struct forward *f, const struct layer_weights *w, float *out)
{
    const struct model_params *p = f->params;
    const struct norm_weights norm = {.weight = w->router_scale};
    f->ops->norm(f->dense, f->x.own, &norm, p->norm_eps, p->d_model, out);
    f->ops->scale(f->dense, 1.0f / sqrtf((float)p->d_model), out, p->d_model);
    return out;
}

/* Queues the routing of a coming layer for `input`, the predicted input of its gate. */
static void queue_prediction(struct forward *f, const struct predict_seen *seen,
                             const struct predict_target *target, const float *input,
                             const struct mirrored_values *predicted_routing)
{
    const struct model_params *p = f->params;
    const struct layer_weights *w = &f->weights->layers[target->layer];
    const float *x = f->gate_in.own;
    if (input == seen->hidden && w->router_scale)
        x = forward_norm_gate(f, w, f->added);
    else if (input != seen->hidden)
        x = f->ops->bring(f->dense, input, (size_t)f->n * p->d_model * sizeof *input);
    const void *in = f->ops->prepare(f->dense, FORWARD_OTHER_SLOT, x, p->d_model,
                                     weights_quantize(&w->prediction_router));
    f->ops->gate(f->dense, &(struct dense_gate){.w = w,
                                                .router = &w->prediction_router,
                                                .in = in,
                                                .logits = f->predicted_router.own,
                                                .selected = predicted_routing->own,
                                                .weights = f->predicted_weights});
    f->ops->fetch(f->dense, predicted_routing, (size_t)f->n * p->router.n_used * sizeof(uint32_t));
    if (experts_reads_scores(f->experts))
        f->ops->fetch(f->dense, &f->predicted_router,
                      (size_t)f->n * p->router.n_experts * sizeof(float));
}

/* predicted_router has the scores of the last layer only: a predictor that reads scores predicts
 * one layer at a time. */
static void report_prediction(struct forward *f, struct predict_seen seen,
                              const struct predict_target *target,
                              const uint32_t *predicted_routing)
{
    const struct router_params *r = &f->params->router;
    float *router = f->predicted_router.host;
    if (experts_reads_scores(f->experts)) {
        if (router_leaves_logits(r->kind))
            router_logits_to_probabilities(router, f->n, r->n_experts);
        seen.scores = router;
    }
    experts_predict_from_gate(f->experts, seen, target, predicted_routing);
}

enum error_code forward_predict_layers(struct forward *f, const struct predict_seen *seen,
                                       struct error *e)
{
    struct predict_target targets[PREDICTED_LAYERS_AT_ONCE];
    const float *input;
    for (uint32_t evaluated = 0, n = PREDICTED_LAYERS_AT_ONCE; n == PREDICTED_LAYERS_AT_ONCE;
         evaluated += n) {
        n = 0;
        while (n < PREDICTED_LAYERS_AT_ONCE &&
               experts_predict_gate(f->experts, *seen, evaluated + n, &targets[n], &input)) {
            queue_prediction(f, seen, &targets[n], input, &f->predicted_routing[n]);
            n++;
        }
        enum error_code code = n ? f->ops->wait(f->dense, e) : ERROR_OK;
        if (code)
            return code;
        for (uint32_t i = 0; i < n; i++)
            report_prediction(f, *seen, &targets[i], f->predicted_routing[i].host);
    }
    experts_predict_end(f->experts);
    return ERROR_OK;
}
