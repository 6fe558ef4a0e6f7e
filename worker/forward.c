/* The forward pass; see forward.h. Attention stands in attention.c. */
#include "forward.h"
#include "experts_alone.h"
#include "forward_internal.h"

#include "model/rope.h"
#include "model/router.h"

#include <math.h>
#include <stdlib.h>

static bool allocate_latent(struct forward *f, size_t n)
{
    const struct model_params *p = f->params;
    f->latent.q_low = f->ops->allocate(f->dense, n * p->q_rank * sizeof(float));
    f->latent.absorbed = f->ops->allocate(f->dense, n * p->n_heads * p->k_dim * sizeof(float));
    f->latent.context = f->ops->allocate(f->dense, n * p->n_heads * p->kv_rank * sizeof(float));
    return f->latent.q_low && f->latent.absorbed && f->latent.context;
}

static bool allocate_guesses(struct forward *f, size_t row)
{
    const struct router_params *r = &f->params->router;
    for (unsigned i = 0; i < GUESSES_AT_ONCE; i++)
        if (!f->ops->allocate_shared(f->dense, row * r->n_used, &f->guessed[i]))
            return false;
    return f->ops->allocate_shared(f->dense, row * r->n_experts, &f->guessed_router);
}

static bool allocate(struct forward *f)
{
    const struct model_params *p = f->params;
    const struct dense_ops *ops = f->ops;
    struct dense *d = f->dense;
    size_t n = d->max_tokens, row = n * sizeof(float);
    size_t width = p->d_shared > p->d_dense ? p->d_shared : p->d_dense;
    f->alone_stride = WORKER_ALONE_TOKENS * p->router.n_used;
    f->rope = calloc(n * p->rope.dims + 1, sizeof *f->rope);
    f->rope_frequency = calloc(p->rope.dims / 2 + 1, sizeof *f->rope_frequency);
    f->q = ops->allocate(d, row * p->n_heads * p->q_dim);
    f->k = ops->allocate(d, row * p->n_kv_heads * p->k_dim);
    f->v = ops->allocate(d, row * p->n_kv_heads * p->v_dim);
    f->attended = ops->allocate(d, row * p->n_heads * p->o_dim);
    f->guessed_weights = ops->allocate(d, row * p->router.n_used);
    f->expert_weights = ops->allocate(d, row * p->router.n_used);
    f->ffn_gate = ops->allocate(d, row * width);
    f->ffn_up = ops->allocate(d, row * width);
    f->shared_out = ops->allocate(d, row * p->d_model);
    f->shared_scale = ops->allocate(d, row);
    return f->rope && f->rope_frequency && f->q && f->k && f->v && f->attended &&
           f->guessed_weights && f->expert_weights && f->ffn_gate &&
           f->ffn_up && f->shared_out && f->shared_scale &&
           ops->allocate_shared(d, row * p->d_model, &f->x) &&
           ops->allocate_shared(d, row * p->d_model, &f->h) &&
           ops->allocate_shared(d, row * p->router.n_experts, &f->router) &&
           ops->allocate_shared(d, row * p->router.n_used, &f->selected) &&
           ops->allocate_shared(d, (size_t)p->n_layers * f->alone_stride * sizeof(uint32_t),
                                &f->alone) &&
           allocate_guesses(f, row) && (!p->kv_rank || allocate_latent(f, n));
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
    *out = f;
    return ERROR_OK;
}

void forward_free(struct forward *f)
{
    if (!f)
        return;
    free(f->rope);
    free(f->rope_frequency);
    free(f);
}

/* Rows of x through a norm into h. */
static void norm_rows(struct forward *f, const struct norm_weights *w)
{
    f->ops->norm(f->dense, f->x.own, w, f->params->norm_eps, f->params->d_model, f->h.own);
}

/* What a layer's gate, or its guess_router, makes of its input: each token's experts, and their weights. */
static void route(struct forward *f, const struct layer_weights *w, const struct matrix *router, const void *in,
                  float *logits, uint32_t *selected, float *weights)
{
    f->ops->multiply_router(f->dense, router, in, logits);
    f->ops->add_bias(f->dense, w->router_bias, logits, router->rows);
    f->ops->route(f->dense, w->selection_bias, logits, selected, weights);
}

/* out [n][d_model] (+)= down(act(gate h) * up h), the FFN of every token. */
static void plain_ffn(struct forward *f, const struct matrix *gate, const struct matrix *up,
                      const struct matrix *down, const void *in, float *out, bool accumulate)
{
    const struct exec_product products[] = {{gate, f->ffn_gate, gate->rows, false},
                                            {up, f->ffn_up, up->rows, false}};
    f->ops->multiply_several(f->dense, products, 2, in);
    f->ops->gated(f->dense, f->ffn_gate, f->ffn_up, gate->rows, f->ffn_gate);
    const void *hidden =
        f->ops->prepare(f->dense, 0, f->ffn_gate, gate->rows, weights_quantize(down));
    f->ops->multiply(f->dense, down, hidden, out, accumulate);
}

/* shared_out = the shared expert, times sigmoid(gate . h) where it has a gate, while the routed experts are
 * computed. */
static void shared_expert(struct forward *f, const struct layer_weights *w, const void *in)
{
    bool gated = w->shared_gate_input.tiles != NULL;
    if (gated) /* first: the input is overwritten below */
        f->ops->multiply(f->dense, &w->shared_gate_input, in, f->shared_scale, false);
    plain_ffn(f, &w->shared_gate, &w->shared_up, &w->shared_down, in, f->shared_out, false);
    if (gated)
        f->ops->scale_by_sigmoid(f->dense, f->shared_scale, f->shared_out, f->params->d_model);
}

/* A layer without experts: x += FFN of the normed x. */
static void run_dense_ffn(struct forward *f, const struct layer_weights *w)
{
    norm_rows(f, &w->ffn_norm);
    bool quantize = weights_quantize(&w->dense_gate) || weights_quantize(&w->dense_up);
    const void *in = f->ops->prepare(f->dense, 0, f->h.own, f->params->d_model, quantize);
    plain_ffn(f, &w->dense_gate, &w->dense_up, &w->dense_down, in, f->x.own, true);
}

/* Inputs lie in slot 0, the experts' on an emulated device in 1 (device_compute.c), which loads are still computed with. */
enum { GUESS_SLOT = 2 };

/* What a layer to come would activate, were its gate's input that one. */
static void queue_guess(struct forward *f, const struct predict_seen *seen,
                        const struct predict_target *target, const float *input,
                        const struct dense_values *guessed)
{
    const struct model_params *p = f->params;
    const struct layer_weights *w = &f->weights->layers[target->layer];
    const float *x = f->h.own;
    if (input != seen->hidden)
        x = f->ops->bring(f->dense, input, (size_t)f->n * p->d_model * sizeof *input);
    const void *in = f->ops->prepare(f->dense, GUESS_SLOT, x, p->d_model, weights_quantize(&w->guess_router));
    route(f, w, &w->guess_router, in, f->guessed_router.own, guessed->own, f->guessed_weights);
    f->ops->fetch(f->dense, guessed, (size_t)f->n * p->router.n_used * sizeof(uint32_t));
    if (experts_reads_scores(f->experts))
        f->ops->fetch(f->dense, &f->guessed_router, (size_t)f->n * p->router.n_experts * sizeof(float));
}

/* Who reads scores predicts one layer at a time: they are the last guess's. */
static void tell_guess(struct forward *f, struct predict_seen seen,
                       const struct predict_target *target, const uint32_t *guessed)
{
    const struct router_params *r = &f->params->router;
    float *router = f->guessed_router.host;
    if (experts_reads_scores(f->experts)) {
        if (router_leaves_logits(r->kind))
            router_logits_to_probabilities(router, f->n, r->n_experts);
        seen.scores = router;
    }
    experts_predict_guess(f->experts, seen, target, guessed);
}

/* What layers to come would activate, were their gates' input what the predictor says: for who copies experts ahead. */
static enum error_code guess_ahead(struct forward *f, const struct predict_seen *seen, struct error *e)
{
    struct predict_target targets[GUESSES_AT_ONCE];
    const float *input;
    for (uint32_t asked = 0, n = GUESSES_AT_ONCE; n == GUESSES_AT_ONCE; asked += n) {
        n = 0;
        while (n < GUESSES_AT_ONCE &&
               experts_predict_gate(f->experts, *seen, asked + n, &targets[n], &input)) {
            queue_guess(f, seen, &targets[n], input, &f->guessed[n]);
            n++;
        }
        enum error_code code = n ? f->ops->wait(f->dense, e) : ERROR_OK;
        if (code)
            return code;
        for (uint32_t i = 0; i < n; i++)
            tell_guess(f, *seen, &targets[i], f->guessed[i].host);
    }
    experts_predict_end(f->experts);
    return ERROR_OK;
}

static void record(struct forward *f, uint32_t layer, const uint32_t *selected)
{
    const struct model_params *p = f->params;
    const float *router = f->router.host, *h = f->h.host;
    for (size_t t = 0; t < f->n; t++)
        if (f->batch[t].recording)
            recording_layer(f->batch[t].recording, f->batch[t].position, layer,
                            selected + t * p->router.n_used, router + t * p->router.n_experts,
                            h + t * p->d_model);
}

/* What others read of the layer's gate: who copies, who computes experts, who predicts, who records. */
static enum error_code fetch_routing(struct forward *f, const struct dense_values *selected,
                                     struct error *e)
{
    const struct router_params *r = &f->params->router;
    size_t row = f->n * sizeof(float);
    f->ops->fetch(f->dense, selected, row * r->n_used);
    f->ops->fetch(f->dense, &f->router, row * r->n_experts);
    f->ops->fetch(f->dense, &f->h, row * f->params->d_model);
    enum error_code code = f->ops->wait(f->dense, e);
    return code ? experts_lose_device(f->experts, e) : ERROR_OK;
}

/* The normed rows, ready for the layer's gate, its experts, and its shared expert. */
static const void *prepare_ffn(struct forward *f, uint32_t layer, bool experts)
{
    const struct layer_weights *w = &f->weights->layers[layer];
    bool quantize = experts || weights_quantize(&w->router) || weights_quantize(&w->shared_gate) ||
                    weights_quantize(&w->shared_up) || weights_quantize(&w->shared_gate_input);
    return f->ops->prepare(f->dense, 0, f->h.own, f->params->d_model, quantize);
}

static struct predict_seen seen_of(const struct forward *f, uint32_t layer, const uint32_t *selected)
{
    return (struct predict_seen){.layer = layer,
                                 .n_tokens = f->n,
                                 .tokens = f->shown,
                                 .hidden = f->h.host,
                                 .gate = f->router.host,
                                 .selected = selected};
}

/* x += the shared expert and the routed ones, which are on their way. */
static void combine(struct forward *f, const struct layer_weights *w, const uint32_t *selected)
{
    f->ops->combine(f->dense, f->experts, w->down_bias, f->expert_weights, selected,
                    f->params->d_shared ? f->shared_out : NULL, f->x.own);
}

/* Of a layer, what is done while its experts are computed. */
struct beside_experts {
    struct forward *f;
    const struct layer_weights *w;
    const void *in; /* prepare_ffn's */
    struct predict_seen seen;
};

static enum error_code run_beside_experts(void *arg, struct error *e)
{
    struct beside_experts *b = arg;
    enum error_code code = guess_ahead(b->f, &b->seen, e);
    if (!code && b->f->params->d_shared)
        shared_expert(b->f, b->w, b->in);
    return code;
}

/* A layer's experts as the host plans them; in: prepare_ffn's. The gate's choice is fetched. */
static enum error_code run_planned(struct forward *f, uint32_t layer, const void *in,
                                   const struct dense_values *selected, struct error *e)
{
    const struct layer_weights *w = &f->weights->layers[layer];
    experts_begin(f->experts, layer, &f->h, f->n, selected->host, f->one_request);
    struct beside_experts b = {f, w, in, seen_of(f, layer, selected->host)};
    experts_show(f->experts, b.seen);
    if (f->recorded)
        record(f, layer, selected->host);
    enum error_code code =
        experts_finish(f->experts, &(struct experts_meanwhile){run_beside_experts, &b}, e);
    if (!code)
        combine(f, w, selected->own);
    return code;
}

static enum error_code run_experts(struct forward *f, uint32_t layer, struct error *e)
{
    const struct layer_weights *w = &f->weights->layers[layer];
    experts_look(f->experts, layer); /* what came meanwhile, the first layer's above all */
    norm_rows(f, &w->ffn_norm);
    const void *in = prepare_ffn(f, layer, false);
    route(f, w, &w->router, in, f->router.own, f->selected.own, f->expert_weights);
    enum error_code code = fetch_routing(f, &f->selected, e);
    return code ? code : run_planned(f, layer, in, &f->selected, e);
}

static void run_attention(struct forward *f, uint32_t layer)
{
    norm_rows(f, &f->weights->layers[layer].attn_norm);
    forward_attention(f, layer);
}

/* ---- Layers that the device runs by itself: experts_alone.h ---- */

static struct dense_values alone_at(const struct forward *f, uint32_t layer)
{
    size_t first = (size_t)layer * f->alone_stride;
    return (struct dense_values){(uint32_t *)f->alone.own + first, (uint32_t *)f->alone.host + first};
}

/* All of a layer. Nothing here may depend on more than dense_ops.again says. */
static void queue_alone(struct forward *f, uint32_t layer)
{
    const struct layer_weights *w = &f->weights->layers[layer];
    uint32_t *selected = alone_at(f, layer).own;
    run_attention(f, layer);
    norm_rows(f, &w->ffn_norm);
    const void *in = prepare_ffn(f, layer, experts_alone_quantize(f->experts, layer));
    route(f, w, &w->router, in, f->router.own, selected, f->expert_weights);
    experts_alone_queue(f->experts, layer, in, selected);
    if (f->params->d_shared)
        shared_expert(f, w, in);
    combine(f, w, selected);
}

/* The choices of the layers; of one also what run_planned reads. Then whether all were done. */
static enum error_code fetch_alone(struct forward *f, uint32_t layer, uint32_t n, struct error *e)
{
    struct dense_values first = alone_at(f, layer);
    experts_alone_fetch(f->experts);
    if (n == 1)
        return fetch_routing(f, &first, e);
    f->ops->fetch(f->dense, &first, (size_t)n * f->alone_stride * sizeof(uint32_t));
    enum error_code code = f->ops->wait(f->dense, e);
    return code ? experts_lose_device(f->experts, e) : ERROR_OK;
}

/* A layer that missed an expert, whose attention is done. Nothing came after it where it was the only one. */
static enum error_code run_missed(struct forward *f, uint32_t layer, bool only, struct error *e)
{
    struct dense_values selected = alone_at(f, layer);
    return only ? run_planned(f, layer, prepare_ffn(f, layer, false), &selected, e)
                : run_experts(f, layer, e);
}

/* True: as a graph. */
static bool queue_or_replay(struct forward *f, uint32_t layer)
{
    experts_alone_look(f->experts, layer);
    if (f->ops->again(f->dense, layer))
        return true;
    queue_alone(f, layer);
    if (!f->ops->keep(f->dense))
        queue_alone(f, layer);
    return false;
}

/* Layers [layer, layer + n), or the first of them, as *done says: those before one that missed an expert, and that one. */
static enum error_code run_alone(struct forward *f, uint32_t layer, uint32_t n, uint32_t *done,
                                 struct error *e)
{
    uint32_t n_replayed = 0;
    experts_alone_begin(f->experts, layer, n, f->n);
    for (uint32_t i = layer; i < layer + n; i++)
        n_replayed += queue_or_replay(f, i);
    enum error_code code = fetch_alone(f, layer, n, e);
    if (code) {
        experts_alone_give_up(f->experts);
        return code;
    }
    *done = experts_alone_end(f->experts, alone_at(f, layer).host, f->alone_stride, n_replayed);
    return *done < n ? run_missed(f, layer + (*done)++, n == 1, e) : ERROR_OK;
}

/* A layer, or some. */
static enum error_code run_layers(struct forward *f, uint32_t layer, uint32_t *done, struct error *e)
{
    uint32_t n = 0;
    experts_look(f->experts, layer); /* copies go on under attention */
    if (layer >= f->params->n_dense && !f->recorded)
        n = experts_alone_layers(f->experts, layer, f->n);
    if (n)
        return run_alone(f, layer, n, done, e);
    *done = 1;
    run_attention(f, layer);
    if (layer >= f->params->n_dense)
        return run_experts(f, layer, e);
    run_dense_ffn(f, &f->weights->layers[layer]);
    return ERROR_OK;
}

/* Row t's cosines and sines of position * frequency. */
static void prepare_rope(struct forward *f)
{
    const struct rope_params *r = &f->params->rope;
    uint32_t half = r->dims / 2;
    for (uint32_t t = 0; t < f->n; t++)
        for (uint32_t i = 0; i < half; i++) {
            double angle = f->batch[t].position * f->rope_frequency[i];
            f->rope[(size_t)t * 2 * half + i] = (float)(r->magnitude * cos(angle));
            f->rope[(size_t)t * 2 * half + half + i] = (float)(r->magnitude * sin(angle));
        }
}

/* For who predicts from the embedding. */
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
                        bool one_request)
{
    f->one_request = one_request;
    f->batch = batch;
    f->n = n;
    f->recorded = false;
    for (uint32_t t = 0; t < n; t++)
        f->recorded |= batch[t].recording != NULL;
    for (uint32_t t = 0; t < n && t < PREDICT_MAX_TOKENS; t++)
        f->shown[t] = (struct predict_token){batch[t].request, batch[t].position};
    prepare_rope(f);
    f->ops->begin(f->dense, batch, n, f->rope, one_request);
}

const float *forward_run(struct forward *f, const struct batch_token *batch, uint32_t n,
                         bool one_request, struct error *e)
{
    const struct model_params *p = f->params;
    begin_batch(f, batch, n, one_request);
    f->ops->embed(f->dense, &f->weights->embedding, f->x.own);
    if (experts_reads_embedding(f->experts, n) && show_embedding(f, e))
        return NULL;
    for (uint32_t layer = 0, done; layer < p->n_layers; layer += done)
        if (run_layers(f, layer, &done, e))
            return NULL;
    norm_rows(f, &f->weights->output_norm);
    if (!one_request)
        return f->h.host;
    f->ops->fetch(f->dense, &f->h, (size_t)n * p->d_model * sizeof(float));
    if (f->ops->wait(f->dense, e)) {
        experts_lose_device(f->experts, e);
        return NULL;
    }
    return f->h.host;
}

/* Where the dense part finds rows of hidden values: those of the run before are there, others are brought. */
static const float *own_of(struct forward *f, const float *hidden, uint32_t n)
{
    size_t width = f->params->d_model, bytes = f->dense->max_tokens * width * sizeof *hidden;
    size_t offset = (uintptr_t)hidden - (uintptr_t)f->h.host;
    if (offset < bytes)
        return (const float *)((const uint8_t *)f->h.own + offset);
    return f->ops->bring(f->dense, hidden, n * width * sizeof *hidden);
}

bool forward_logits(struct forward *f, const float *hidden, uint32_t n, bool one_request,
                    float *logits, struct error *e)
{
    if (!f->ops->logits(f->dense, &f->weights->output, f->weights->output_bias,
                        own_of(f, hidden, n), n, one_request, logits, e))
        return true;
    experts_lose_device(f->experts, e);
    return false;
}

bool forward_gives_largest(const struct forward *f)
{
    return f->ops->largest != NULL;
}

bool forward_largest(struct forward *f, const float *hidden, uint32_t n, uint32_t k, float *values,
                     uint32_t *places, struct error *e)
{
    if (!f->ops->largest(f->dense, &f->weights->output, f->weights->output_bias, own_of(f, hidden, n), n, k,
                         values, places, e))
        return true;
    experts_lose_device(f->experts, e);
    return false;
}
