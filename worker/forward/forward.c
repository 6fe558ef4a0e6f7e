/* The forward pass; see forward.h and, for its parts in other files, forward_internal.h. */
#include "forward.h"
#include "worker/experts/device_only.h"
#include "forward_internal.h"

#include "model/rope.h"

#include <math.h>
#include <stdlib.h>

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
    if (!f || !forward_allocate(f)) {
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
    const float *x = forward_norm_gate(f, w, f->gate_in.own);
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

/* Showing a layer takes this thread's time: a copy, a wake-up. An asynchronous device gets its
 * experts first. */
static enum error_code run_overlapped(void *arg, struct error *e)
{
    struct overlap_experts *b = arg;
    if (experts_run_async(b->f->experts))
        experts_show(b->f->experts, b->seen);
    enum error_code code = forward_predict_layers(b->f, &b->seen, e);
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
    if (!experts_run_async(f->experts))
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
    forward_place_fetched(f);
    prepare_rope(f);
    f->ops->begin(f->dense, batch, n, f->rope, &kind.groups);
}

void forward_set_heartbeat(struct forward *f, struct heartbeat *h)
{
    f->heartbeat = h;
    experts_set_heartbeat(f->experts, h);
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
