/* The forward pass; see forward.h. Attention is in attention.c. */
#include "forward.h"
#include "worker/experts/device_only.h"
#include "forward_internal.h"

#include "base/arrays.h"
#include "model/rope.h"
#include "model/router.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define FLOAT_EXPONENT 0x7f800000u

static bool allocate_latent(struct forward *f, size_t n)
{
    const struct model_params *p = f->params;
    f->latent.q_low = f->ops->allocate(f->dense, n * p->q_rank * sizeof(float));
    const struct params_most most = params_most(p);
    f->latent.absorbed = f->ops->allocate(f->dense, n * most.heads * most.k_dim * sizeof(float));
    f->latent.context = f->ops->allocate(f->dense, n * most.heads * p->kv_rank * sizeof(float));
    return f->latent.q_low && f->latent.absorbed && f->latent.context;
}

static bool allocate_delta(struct forward *f, size_t row)
{
    const struct delta_params *d = &f->params->delta;
    uint32_t channels = params_convolved(f->params), values = d->v_heads * d->v_dim;
    f->delta.in = f->ops->allocate(f->dense, row * (channels + values));
    f->delta.qkv = f->ops->allocate(f->dense, row * channels);
    f->delta.z = f->ops->allocate(f->dense, row * values);
    f->delta.beta = f->ops->allocate(f->dense, row * 2 * d->v_heads);
    f->delta.alpha = f->ops->allocate(f->dense, row * d->v_heads);
    f->delta.out = f->ops->allocate(f->dense, row * values);
    return f->delta.in && f->delta.qkv && f->delta.z && f->delta.beta && f->delta.alpha &&
           f->delta.out;
}

static bool allocate_convolution(struct forward *f, size_t row)
{
    f->convolution.in = f->ops->allocate(f->dense, row * 3 * f->params->d_model);
    f->convolution.out = f->ops->allocate(f->dense, row * f->params->d_model);
    return f->convolution.in && f->convolution.out;
}

static bool allocate_gates(struct forward *f, size_t row)
{
    const struct params_most most = params_most(f->params);
    bool of_query = f->params->arch->query_gate, of_output = f->params->arch->output_gate;
    if (of_query)
        f->q_and_gate = f->ops->allocate(f->dense, row * 2 * most.q);
    if (of_query || of_output)
        f->query_gate = f->ops->allocate(f->dense, row * (of_query ? most.q : most.attended));
    return (!of_query || f->q_and_gate) && (!(of_query || of_output) || f->query_gate);
}

static bool allocate_predicted(struct forward *f, size_t row)
{
    const struct router_params *r = &f->params->router;
    for (unsigned i = 0; i < PREDICTED_LAYERS_AT_ONCE; i++)
        if (!f->ops->allocate_shared(f->dense, row * r->n_used, &f->predicted_routing[i]))
            return false;
    return f->ops->allocate_shared(f->dense, row * r->n_experts, &f->predicted_router);
}

/* Values of a row that are fetched of a layer that the host plans. */
static size_t fetched_values(const struct model_params *p)
{
    return (size_t)(p->arch->router_norm ? 2 : 1) * p->d_model + p->router.n_experts +
           p->router.n_used;
}

static struct mirrored_values behind(struct mirrored_values v, size_t values)
{
    return (struct mirrored_values){(float *)v.own + values, (float *)v.host + values};
}

/* Where the batch has what is fetched. */
static void place_fetched(struct forward *f)
{
    const struct model_params *p = f->params;
    size_t n = f->n, row = n * p->d_model;
    f->h = f->gate_in = f->fetched;
    if (p->arch->router_norm)
        f->gate_in = behind(f->h, row);
    f->router = behind(f->gate_in, row);
    f->selected = behind(f->router, n * p->router.n_experts);
    f->fetched_bytes = n * fetched_values(p) * sizeof(float);
    f->device_only_stride = f->n * p->router.n_used;
}

static bool allocate_added(struct forward *f, size_t row)
{
    const struct architecture *a = f->params->arch;
    if (a->post_norms)
        f->added = f->ops->allocate(f->dense, row * f->params->d_model);
    if (a->parallel)
        f->kept = f->ops->allocate(f->dense, row * f->params->d_model);
    return (!a->post_norms || f->added) && (!a->parallel || f->kept);
}

static bool allocate(struct forward *f)
{
    const struct model_params *p = f->params;
    const struct dense_ops *ops = f->ops;
    struct dense *d = f->dense;
    const struct params_most most = params_most(p);
    size_t n = d->max_tokens, row = n * sizeof(float);
    size_t width = p->d_shared > p->d_dense ? p->d_shared : p->d_dense;
    f->rope_memory = ARRAYS_NEW(ARRAY(f->rope, n * params_angles(p)),
                                ARRAY(f->rope_frequency, params_angles(p) / 2));
    f->q = ops->allocate(d, row * most.q);
    f->k = ops->allocate(d, row * most.k);
    f->v = ops->allocate(d, row * most.v);
    f->attended = ops->allocate(d, row * most.attended);
    f->predicted_weights = ops->allocate(d, row * p->router.n_used);
    f->expert_weights = ops->allocate(d, row * p->router.n_used);
    f->ffn_gate = ops->allocate(d, row * width);
    f->ffn_up = ops->allocate(d, row * width);
    f->shared_out = ops->allocate(d, row * p->d_model);
    f->shared_scale = ops->allocate(d, row);
    return f->rope_memory && f->q && f->k && f->v && f->attended && f->predicted_weights &&
           f->expert_weights && f->ffn_gate && f->ffn_up && f->shared_out && f->shared_scale &&
           ops->allocate_shared(d, row * p->d_model, &f->x) &&
           ops->allocate_shared(d, row * fetched_values(p), &f->fetched) &&
           ops->allocate_shared(d,
                                (size_t)p->n_layers * WORKER_DEVICE_ONLY_TOKENS * p->router.n_used *
                                    sizeof(uint32_t),
                                &f->device_only) &&
           allocate_predicted(f, row) && (!p->kv_rank || allocate_latent(f, n)) &&
           allocate_added(f, row) && allocate_gates(f, row) &&
           (!p->delta.v_heads || allocate_delta(f, row)) &&
           (!p->arch->short_convolutions || allocate_convolution(f, row));
}

enum error_code forward_new(const struct model_params *params, const struct model_weights *weights,
                            struct dense *dense, struct experts *experts, uint32_t context,
                            struct forward **out, struct error *e)
{
    struct forward *f = calloc(1, sizeof *f);
    if (f) {
        f->params = params;
        f->weights = weights;
        f->dense = dense;
        f->ops = dense->ops;
        f->experts = experts;
    }
    if (!f || !allocate(f)) {
        forward_free(f);
        return error_set(e, ERROR_MEMORY, "no memory for the scratch of %u tokens",
                         dense->max_tokens);
    }
    bool far = rope_uses_long(&params->rope, context);
    rope_frequencies(&params->rope, far ? weights->rope_long_factors : weights->rope_factors,
                     f->rope_frequency);
    if (params->windowed_rope.dims)
        rope_frequencies(&params->windowed_rope, NULL, f->rope_frequency + params->rope.dims / 2);
    f->h = f->fetched;
    *out = f;
    return ERROR_OK;
}

void forward_free(struct forward *f)
{
    if (!f)
        return;
    free(f->rope_memory);
    free(f);
}

const void *forward_norm(struct forward *f, const struct norm_weights *w, bool quantize)
{
    return f->ops->norm_prepare(f->dense, FORWARD_SLOT, f->x.own, w, f->params->norm_eps,
                                f->params->d_model, f->h.own, quantize);
}

/* out [n][d_model] (+)= down(act(gate h) * up h), the FFN of every token. */
static void plain_ffn(struct forward *f, struct gating gating, const struct matrix *gate,
                      const struct matrix *up, const struct matrix *down, const void *in,
                      float *out, bool accumulate)
{
    const void *hidden = f->ops->multiply_gated(f->dense, FORWARD_HIDDEN_SLOT, gating, gate, up, in,
                                                f->ffn_gate, f->ffn_up, weights_quantize(down));
    f->ops->multiply(f->dense, down, hidden, out, accumulate);
}

/* The same, of the shared expert's own input and with a norm of its output. */
static void normed_shared_expert(struct forward *f, struct gating gating,
                                 const struct layer_weights *w)
{
    const struct model_params *p = f->params;
    bool quantize = weights_quantize(&w->shared_gate) || weights_quantize(&w->shared_up);
    const void *in = f->ops->norm_prepare(f->dense, FORWARD_OTHER_SLOT, f->x.own, &w->shared_norm,
                                          p->norm_eps, p->d_model, f->added, quantize);
    plain_ffn(f, gating, &w->shared_gate, &w->shared_up, &w->shared_down, in, f->shared_out, false);
    f->ops->norm(f->dense, f->shared_out, &w->shared_post_norm, p->norm_eps, p->d_model,
                 f->shared_out);
}

/* shared_out = half of it, where it is averaged with the routed experts: their half is in their
 * weights. */
static void average_shared(struct forward *f)
{
    if (f->params->arch->shared_average)
        f->ops->scale(f->dense, 0.5f, f->shared_out, f->params->d_model);
}

/* shared_out = the shared expert, while the routed experts are computed. in: queue_gate's; the gate
 * has made the factor of a shared expert that has one. */
static void shared_expert(struct forward *f, uint32_t layer, const void *in)
{
    const struct layer_weights *w = &f->weights->layers[layer];
    struct gating gating = params_shared_gating(f->params, layer);
    if (w->shared_norm.weight) {
        normed_shared_expert(f, gating, w);
        return;
    }
    plain_ffn(f, gating, &w->shared_gate, &w->shared_up, &w->shared_down, in, f->shared_out, false);
    average_shared(f);
}

/* h = the input of the feed-forward part, prepared. */
static const void *norm_for_ffn(struct forward *f, const struct layer_weights *w, bool quantize)
{
    if (!f->params->arch->parallel)
        return forward_norm(f, &w->ffn_norm, quantize);
    /* it is attention's, which is there still */
    return f->ops->prepare(f->dense, FORWARD_SLOT, f->h.own, f->params->d_model, quantize);
}

/* x += the norm of `added`; then x *= output_scale. */
static void add_normed(struct forward *f, const struct layer_weights *w, float *added)
{
    f->ops->norm_add(f->dense, added, &w->ffn_post_norm, f->params->norm_eps, f->params->d_model,
                     w->output_scale, f->x.own);
}

/* A layer without experts: x += FFN of the normed x. */
static void run_dense_ffn(struct forward *f, uint32_t layer)
{
    const struct layer_weights *w = &f->weights->layers[layer];
    bool normed = w->ffn_post_norm.weight != NULL;
    bool quantize = weights_quantize(&w->dense_gate) || weights_quantize(&w->dense_up);
    const void *in = norm_for_ffn(f, w, quantize);
    plain_ffn(f, params_shared_gating(f->params, layer), &w->dense_gate, &w->dense_up,
              &w->dense_down, in, normed ? f->added : f->x.own, !normed);
    if (normed)
        add_normed(f, w, f->added);
}

/* The input of a gate that has a norm of its own, to `out`. */
static const float *norm_gate(struct forward *f, const struct layer_weights *w, float *out)
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
        x = norm_gate(f, w, f->added);
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

/* Predicts the routing of coming layers, from the inputs that the predictor gives for their gates:
 * the prefetcher's source. */
static enum error_code predict_layers(struct forward *f, const struct predict_seen *seen,
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

static void record(struct forward *f, uint32_t layer, const uint32_t *selected)
{
    const struct model_params *p = f->params;
    const float *router = f->router.host, *h = f->gate_in.host;
    for (size_t t = 0; t < f->n; t++)
        if (f->batch[t].recording)
            recording_layer(f->batch[t].recording, f->batch[t].position, layer,
                            selected + t * p->router.n_used, router + t * p->router.n_experts,
                            h + t * p->d_model);
}

/* Queues the fetch of the gate's input, its scores and its choices: the plan, memd, cpuexec, the
 * predictors and recordings read them. */
static void fetch_routing(struct forward *f)
{
    f->ops->fetch(f->dense, &f->fetched, f->fetched_bytes);
}

static enum error_code await(struct forward *f, struct error *e)
{
    enum error_code code = f->ops->wait(f->dense, e);
    return code ? experts_lose_device(f->experts, e) : ERROR_OK;
}

/* True: the normed rows are quantised, as input of the layer's gate, experts or shared expert. */
static bool quantizes_ffn(const struct forward *f, uint32_t layer)
{
    const struct layer_weights *w = &f->weights->layers[layer];
    return experts_quantize_own(f->experts, layer) || weights_quantize(&w->router) ||
           weights_quantize(&w->shared_gate) || weights_quantize(&w->shared_up) ||
           weights_quantize(&w->shared_gate_input);
}

/* Prepares the input of a gate that has a norm of its own. */
static const void *prepare_gate(struct forward *f, const struct layer_weights *w)
{
    const float *x = norm_gate(f, w, f->gate_in.own);
    return f->ops->prepare(f->dense, FORWARD_OTHER_SLOT, x, f->params->d_model,
                           weights_quantize(&w->router));
}

/* Queues the gate of a layer, behind its attention; choice NULL: the host plans. Returns the input
 * of the layer's experts and shared expert. */
static const void *queue_gate(struct forward *f, uint32_t layer, uint32_t *selected,
                              const struct device_choice *choice)
{
    const struct layer_weights *w = &f->weights->layers[layer];
    const void *in = norm_for_ffn(f, w, quantizes_ffn(f, layer));
    f->ops->gate(f->dense, &(struct dense_gate){
                               .w = w,
                               .router = &w->router,
                               .in = w->router_scale ? prepare_gate(f, w) : in,
                               .logits = f->router.own,
                               .selected = selected,
                               .weights = f->expert_weights,
                               .shared_by = w->shared_gate_input.tiles ? f->shared_scale : NULL,
                               .choice = choice});
    return in;
}

static struct predict_seen seen_of(const struct forward *f, uint32_t layer,
                                   const uint32_t *selected)
{
    return (struct predict_seen){.layer = layer,
                                 .n_tokens = f->n,
                                 .tokens = f->shown,
                                 .hidden = f->gate_in.host,
                                 .gate = f->router.host,
                                 .selected = selected};
}

/* x += the norm of the sum of the shared expert and the routed experts' sum. Where that sum has a
 * norm of its own, the shared expert is normed already. */
static void combine_normed(struct forward *f, const struct layer_weights *w,
                           const uint32_t *selected)
{
    uint32_t width = f->params->d_model;
    bool apart = w->experts_post_norm.weight != NULL;
    float *shared = f->params->d_shared ? f->shared_out : NULL, *added = f->added;
    const float *shared_by = !apart && w->shared_gate_input.tiles ? f->shared_scale : NULL;
    f->ops->clear(f->dense, added, width);
    f->ops->combine(f->dense, f->experts, w->down_bias, f->expert_weights, selected,
                    apart ? NULL : shared, shared_by, added);
    if (apart)
        f->ops->norm_add(f->dense, added, &w->experts_post_norm, f->params->norm_eps, width, 1,
                         shared);
    add_normed(f, w, apart ? shared : added);
}

/* x += the shared expert and the routed experts; waits for nothing. */
static void combine(struct forward *f, const struct layer_weights *w, const uint32_t *selected)
{
    if (w->ffn_post_norm.weight) {
        combine_normed(f, w, selected);
        return;
    }
    f->ops->combine(f->dense, f->experts, w->down_bias, f->expert_weights, selected,
                    f->params->d_shared ? f->shared_out : NULL,
                    w->shared_gate_input.tiles ? f->shared_scale : NULL, f->x.own);
}

/* The work of a layer that overlaps with the computing of its experts. */
struct overlap_experts {
    struct forward *f;
    uint32_t layer;
    const void *in; /* queue_gate's */
    struct predict_seen seen;
};

static enum error_code run_overlapped(void *arg, struct error *e)
{
    struct overlap_experts *b = arg;
    enum error_code code = predict_layers(b->f, &b->seen, e);
    if (!code && b->f->params->d_shared)
        shared_expert(b->f, b->layer, b->in);
    return code;
}

/* Runs a layer's experts as the host plans them. in: queue_gate's; `selected` is fetched already.
 */
static enum error_code run_planned(struct forward *f, uint32_t layer, const void *in,
                                   const struct mirrored_values *selected, struct error *e)
{
    const struct layer_weights *w = &f->weights->layers[layer];
    experts_begin(f->experts, layer, &(struct layer_input){&f->h, in}, f->n, selected->host,
                  f->kind);
    struct overlap_experts b = {f, layer, in, seen_of(f, layer, selected->host)};
    experts_show(f->experts, b.seen);
    if (f->recorded)
        record(f, layer, selected->host);
    enum error_code code =
        experts_finish(f->experts, &(struct experts_overlap){run_overlapped, &b}, e);
    if (!code)
        combine(f, w, selected->own);
    return code;
}

static void queue_attention(struct forward *f, uint32_t layer)
{
    const struct layer_params *l = &f->params->layers[layer];
    if (l->kind == LAYER_DELTA_NET)
        forward_delta(f, layer);
    else if (l->kind == LAYER_SHORT_CONVOLUTION)
        forward_short_convolution(f, layer);
    else if (params_is_mamba2(l))
        forward_mamba2(f, layer);
    if (params_attends(l))
        forward_attention(f, layer);
}

/* Queues operations, as a graph where the dense part keeps one of them. */
static bool replay(struct forward *f, enum dense_graph kind, uint32_t layer, uint32_t n,
                   void (*queue)(struct forward *f, uint32_t layer, uint32_t n))
{
    if (f->ops->again(f->dense, kind, layer, n))
        return true;
    queue(f, layer, n);
    if (!f->ops->keep(f->dense))
        queue(f, layer, n);
    return false;
}

/* All of a planned layer that comes before the host's plan. */
static void queue_front(struct forward *f, uint32_t layer, uint32_t n)
{
    (void)n;
    queue_attention(f, layer);
    queue_gate(f, layer, f->selected.own, NULL);
    fetch_routing(f);
}

static void queue_dense_layer(struct forward *f, uint32_t layer, uint32_t n)
{
    (void)n;
    queue_attention(f, layer);
    run_dense_ffn(f, layer);
}

/* queue_gate's result, where a graph has prepared it. */
static const void *prepared_ffn(struct forward *f, uint32_t layer)
{
    return f->ops->prepared(f->dense, FORWARD_SLOT, f->h.own, f->params->d_model,
                            quantizes_ffn(f, layer));
}

static enum error_code run_planned_layer(struct forward *f, uint32_t layer, struct error *e)
{
    experts_count_replayed(f->experts, replay(f, DENSE_GRAPH_FRONT, layer, 1, queue_front));
    experts_look(f->experts, layer); /* copies that came since, above all for the first layer */
    enum error_code code = await(f, e);
    return code ? code : run_planned(f, layer, prepared_ffn(f, layer), &f->selected, e);
}

/* ---- Device-only layers: device_only.h ---- */

static struct mirrored_values device_only_at(const struct forward *f, uint32_t layer)
{
    size_t first = (size_t)layer * f->device_only_stride;
    return (struct mirrored_values){(uint32_t *)f->device_only.own + first,
                                    (uint32_t *)f->device_only.host + first};
}

/* Queues all of a layer. It may depend on nothing but the inputs that dense_ops.again names. */
static void queue_device_only(struct forward *f, uint32_t layer)
{
    const struct layer_weights *w = &f->weights->layers[layer];
    uint32_t *selected = device_only_at(f, layer).own;
    const struct device_choice choice = device_only_choice(f->experts, layer);
    struct device_shared shared;
    bool together = f->params->d_shared && !w->shared_norm.weight;
    queue_attention(f, layer);
    if (f->kept)
        f->ops->copy_rows(f->dense, f->h.own, f->kept, f->params->d_model);
    const void *in = queue_gate(f, layer, selected, &choice);
    if (together)
        f->ops->shared(f->dense, FORWARD_HIDDEN_SLOT, params_shared_gating(f->params, layer), w,
                       f->ffn_gate, f->ffn_up, f->shared_out, &shared);
    device_only_queue(f->experts, &choice, in, together ? &shared : NULL);
    if (together)
        average_shared(f);
    else if (f->params->d_shared)
        shared_expert(f, layer, in);
    combine(f, w, selected);
}

static void queue_device_only_layers(struct forward *f, uint32_t layer, uint32_t n)
{
    for (uint32_t i = layer; i < layer + n; i++)
        queue_device_only(f, i);
}

/* Fetches the choices of the layers, and for a single layer also everything that run_planned reads.
 * Waits. */
static enum error_code fetch_device_only(struct forward *f, uint32_t layer, uint32_t n,
                                         struct error *e)
{
    struct mirrored_values first = device_only_at(f, layer);
    device_only_fetch(f->experts);
    if (n == 1)
        fetch_routing(f);
    f->ops->fetch(f->dense, &first, (size_t)n * f->device_only_stride * sizeof(uint32_t));
    return await(f, e);
}

/* Runs a layer that missed an expert; its attention is done. If it was the only layer, nothing has
 * overwritten its prepared input. Else the attention of later layers has overwritten h. */
static enum error_code run_missed(struct forward *f, uint32_t layer, bool only, struct error *e)
{
    struct mirrored_values selected = device_only_at(f, layer);
    if (only)
        return run_planned(f, layer, prepared_ffn(f, layer), &selected, e);
    if (f->kept)
        f->ops->copy_rows(f->dense, f->kept, f->h.own, f->params->d_model);
    const void *in = queue_gate(f, layer, f->selected.own, NULL);
    fetch_routing(f);
    experts_look(f->experts, layer);
    enum error_code code = await(f, e);
    return code ? code : run_planned(f, layer, in, &f->selected, e);
}

/* Queues layers [layer, layer + n); returns how many were graphs. All layers that a step has are
 * one graph, so that the device goes from layer to layer by itself. */
static uint32_t queue_layers(struct forward *f, uint32_t layer, uint32_t n)
{
    uint32_t n_replayed = 0;
    for (uint32_t i = layer; i < layer + n; i++)
        device_only_look(f->experts, i);
    if (n > 1 && layer == f->params->n_dense && layer + n == f->params->n_layers)
        return n * replay(f, DENSE_GRAPH_WHOLE, layer, n, queue_device_only_layers);
    for (uint32_t i = layer; i < layer + n; i++)
        n_replayed += replay(f, DENSE_GRAPH_WHOLE, i, 1, queue_device_only_layers);
    return n_replayed;
}

/* Runs layers [layer, layer + n), up to and including the first that misses an expert. *done: how
 * many it ran. */
static enum error_code run_device_only(struct forward *f, uint32_t layer, uint32_t n,
                                       uint32_t *done, struct error *e)
{
    device_only_begin(f->experts, layer, n, f->n, f->kind);
    experts_count_replayed(f->experts, queue_layers(f, layer, n));
    enum error_code code = fetch_device_only(f, layer, n, e);
    if (code) {
        device_only_give_up(f->experts);
        return code;
    }
    *done = device_only_end(f->experts, device_only_at(f, layer).host, f->device_only_stride);
    return *done < n ? run_missed(f, layer + (*done)++, n == 1, e) : ERROR_OK;
}

/* Runs one layer, or several device-only layers; *done: how many. */
static enum error_code run_layers(struct forward *f, uint32_t layer, uint32_t *done,
                                  struct error *e)
{
    uint32_t n = 0;
    experts_look(f->experts, layer); /* copies overlap with attention */
    if (layer >= f->params->n_dense && !f->recorded && !f->kind.groups.n)
        n = device_only_layers(f->experts, layer, f->n);
    if (n)
        return run_device_only(f, layer, n, done, e);
    *done = 1;
    if (layer >= f->params->n_dense)
        return run_planned_layer(f, layer, e);
    replay(f, DENSE_GRAPH_WHOLE, layer, 1, queue_dense_layer);
    return ERROR_OK;
}

/* Computes the cosines and sines of position * frequency of each row. */
static void turn_rows(const struct forward *f, const struct rope_params *r, const double *frequency,
                      float *cos_sin)
{
    uint32_t half = r->dims / 2;
    for (uint32_t t = 0; t < f->n; t++)
        for (uint32_t i = 0; i < half; i++) {
            double angle = f->batch[t].position * frequency[i];
            cos_sin[(size_t)t * 2 * half + i] = (float)(r->magnitude * cos(angle));
            cos_sin[(size_t)t * 2 * half + half + i] = (float)(r->magnitude * sin(angle));
        }
}

static void prepare_rope(struct forward *f)
{
    const struct model_params *p = f->params;
    turn_rows(f, &p->rope, f->rope_frequency, f->rope);
    if (p->windowed_rope.dims)
        turn_rows(f, &p->windowed_rope, f->rope_frequency + p->rope.dims / 2,
                  f->rope + (size_t)f->n * p->rope.dims);
}

/* Shows the embedding to a predictor that reads it. */
static enum error_code show_embedding(struct forward *f, struct error *e)
{
    f->ops->fetch(f->dense, &f->x, (size_t)f->n * f->params->d_model * sizeof(float));
    enum error_code code = f->ops->wait(f->dense, e);
    if (code)
        return experts_lose_device(f->experts, e);
    experts_show(f->experts, (struct predict_seen){.layer = PREDICT_EMBEDDING,
                                                   .n_tokens = f->n,
                                                   .tokens = f->shown,
                                                   .hidden = f->x.host});
    return ERROR_OK;
}

static void begin_batch(struct forward *f, const struct batch_token *batch, uint32_t n,
                        struct batch_kind kind)
{
    f->kind = kind;
    f->batch = batch;
    f->n = n;
    f->recorded = false;
    for (uint32_t t = 0; t < n; t++)
        f->recorded |= batch[t].recording != NULL;
    for (uint32_t t = 0; t < n && t < PREDICT_MAX_TOKENS; t++)
        f->shown[t] = (struct predict_token){batch[t].request, batch[t].position, batch[t].token};
    place_fetched(f);
    prepare_rope(f);
    f->ops->begin(f->dense, batch, n, f->rope, &kind.groups);
}

void forward_set_heartbeat(struct forward *f, struct heartbeat *h)
{
    f->heartbeat = h;
}

const float *forward_run(struct forward *f, const struct batch_token *batch, uint32_t n,
                         struct batch_kind kind, bool fetch, struct error *e)
{
    const struct model_params *p = f->params;
    begin_batch(f, batch, n, kind);
    f->ops->embed(f->dense, &f->weights->embedding, f->x.own);
    if (p->arch->embedding_scale)
        f->ops->scale(f->dense, sqrtf((float)p->d_model), f->x.own, p->d_model);
    if (experts_reads_embedding(f->experts, n) && show_embedding(f, e))
        return NULL;
    for (uint32_t layer = 0, done; layer < p->n_layers; layer += done) {
        heartbeat_beat(f->heartbeat);
        if (run_layers(f, layer, &done, e))
            return NULL;
    }
    if (f->ops->end)
        f->ops->end(f->dense);
    f->ops->norm(f->dense, f->x.own, &f->weights->output_norm, p->norm_eps, p->d_model, f->h.own);
    if (!fetch)
        return f->h.host;
    f->ops->fetch(f->dense, &f->h, (size_t)n * p->d_model * sizeof(float));
    if (f->ops->wait(f->dense, e)) {
        experts_lose_device(f->experts, e);
        return NULL;
    }
    return f->h.host;
}

/* The address of rows of hidden values for the dense part: the last run's rows are there already,
 * other rows are copied. */
static const float *own_of(struct forward *f, const float *hidden, uint32_t n)
{
    size_t width = f->params->d_model, bytes = f->dense->max_tokens * width * sizeof *hidden;
    size_t offset = (uintptr_t)hidden - (uintptr_t)f->h.host;
    if (offset < bytes)
        return (const float *)((const uint8_t *)f->h.own + offset);
    return f->ops->bring(f->dense, hidden, n * width * sizeof *hidden);
}

/* A number that is not finite anywhere in a layer reaches all logits of its row. The weights are
 * finite (memd checks them while loading), so the computation overflowed. Without this check the
 * answer would be empty, or any token. */
static bool are_finite(const float *logits, size_t n, size_t stride, struct error *e)
{
    unsigned found = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &logits[i * stride], sizeof bits);
        found |= (bits & FLOAT_EXPONENT) == FLOAT_EXPONENT;
    }
    if (found)
        error_set(e, ERROR_FORMAT,
                  "the model's logits are not finite numbers: a value of a layer before the output "
                  "head overflowed; the model file is damaged, or its conversion is wrong");
    return !found;
}

/* Scales and caps them, where the model does. */
static void finish_logits(const struct forward *f, float *logits, size_t n)
{
    float scale = f->params->logit_scale;
    for (size_t i = 0; i < n && scale != 1; i++)
        logits[i] *= scale;
    if (f->params->logit_cap > 0)
        kernels_get()->soft_cap(f->params->logit_cap, logits, n);
}

bool forward_logits(struct forward *f, const float *hidden, uint32_t n, bool bulk, float *logits,
                    struct error *e)
{
    size_t n_logits = (size_t)n * f->params->vocab;
    if (f->ops->logits(f->dense, &f->weights->output, f->weights->output_bias, own_of(f, hidden, n),
                       n, bulk, logits, e)) {
        experts_lose_device(f->experts, e);
        return false;
    }
    if (!are_finite(logits, n_logits, 1, e))
        return false;
    finish_logits(f, logits, n_logits);
    return true;
}

bool forward_gives_largest(const struct forward *f)
{
    return f->ops->largest != NULL;
}

bool forward_largest(struct forward *f, const float *hidden, uint32_t n, uint32_t k, float *values,
                     uint32_t *places, struct error *e)
{
    if (f->ops->largest(f->dense, &f->weights->output, f->weights->output_bias,
                        own_of(f, hidden, n), n, k, values, places, e)) {
        experts_lose_device(f->experts, e);
        return false;
    }
    if (!are_finite(values, n, k, e)) /* the largest of each row */
        return false;
    finish_logits(f, values, (size_t)n * k);
    return true;
}
