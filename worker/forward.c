/* The forward pass; see forward.h. Attention stands in attention.c. */
#include "forward.h"
#include "forward_internal.h"

#include "base/checked.h"
#include "model/rope.h"
#include "model/router.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static float *floats(size_t n)
{
    size_t bytes = round_up((n ? n : 1) * sizeof(float), 64);
    float *p = aligned_alloc(64, bytes);
    if (p)
        memset(p, 0, bytes);
    return p;
}

static bool allocate(struct forward *f)
{
    const struct model_params *p = f->params;
    size_t n = f->max_tokens;
    f->x = floats(n * p->d_model);
    f->h = floats(n * p->d_model);
    f->q = floats(n * p->n_heads * p->q_dim);
    f->k = floats(n * p->n_kv_heads * p->k_dim);
    f->v = floats(n * p->n_kv_heads * p->v_dim);
    f->attended = floats(n * p->n_heads * p->o_dim);
    f->rows = calloc(n, sizeof *f->rows);
    f->rope = floats(n * p->rope.dims);
    f->rope_frequency = calloc(p->rope.dims / 2 + 1, sizeof *f->rope_frequency);
    f->router = floats(n * p->router.n_experts);
    f->selected = calloc(n * p->router.n_used, sizeof *f->selected);
    f->guessed = calloc(n * p->router.n_used, sizeof *f->guessed);
    f->weights_of = floats(n * p->router.n_used);
    f->guessed_weights = floats(n * p->router.n_used);
    size_t width = p->d_shared > p->d_dense ? p->d_shared : p->d_dense;
    f->ffn_gate = floats(n * width);
    f->ffn_up = floats(n * width);
    f->shared_out = floats(n * p->d_model);
    f->shared_scale = floats(n);
    return f->x && f->h && f->q && f->k && f->v && f->attended && f->rows && f->rope &&
           f->rope_frequency && f->router && f->selected && f->guessed && f->guessed_weights &&
           f->weights_of && f->ffn_gate && f->ffn_up && f->shared_out && f->shared_scale &&
           (!p->kv_rank || latent_allocate(f));
}

static enum error_code make_attention(struct forward *f, struct error *e)
{
    const struct model_params *p = f->params;
    struct attention_shape shape = {.type = f->kv->type,
                                    .n_heads = p->n_heads,
                                    .n_kv_heads = p->n_kv_heads,
                                    .k_dim = p->k_dim,
                                    .v_dim = p->v_dim,
                                    .scale = p->attention_scale,
                                    .key_stride = f->kv->key_bytes,
                                    .value_stride = kv_cache_value_stride(f->kv),
                                    .head_stride = f->kv->head_bytes};
    return attention_new(exec_pool(f->exec), &shape, f->max_tokens, &f->attention, e);
}

enum error_code forward_new(const struct pool_map *map, const struct model_weights *weights,
                            struct kv_cache *kv, struct exec *exec, struct experts *experts,
                            uint32_t max_tokens, struct forward **out, struct error *e)
{
    struct forward *f = calloc(1, sizeof *f);
    if (f) {
        f->map = map;
        f->params = &map->params;
        f->weights = weights;
        f->kv = kv;
        f->exec = exec;
        f->experts = experts;
        f->max_tokens = max_tokens;
        f->kernels = kernels_get();
    }
    if (!f || !allocate(f)) {
        forward_free(f);
        return error_set(e, ERROR_MEMORY, "no memory for the scratch of %u tokens", max_tokens);
    }
    enum error_code code = make_attention(f, e);
    if (code) {
        forward_free(f);
        return code;
    }
    bool far = rope_uses_long(&f->params->rope, kv->context);
    rope_frequencies(&f->params->rope, far ? weights->rope_long_factors : weights->rope_factors,
                     f->rope_frequency);
    *out = f;
    return ERROR_OK;
}

void forward_free(struct forward *f)
{
    if (!f)
        return;
    float *all[] = {f->x,        f->h,      f->q,          f->k,           f->v,
                    f->attended, f->rope,       f->router,      f->weights_of,
                    f->ffn_gate, f->ffn_up, f->shared_out, f->shared_scale};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
    free(f->selected);
    free(f->guessed);
    free(f->guessed_weights);
    free(f->rope_frequency);
    free(f->rows);
    attention_free(f->attention);
    latent_free(f);
    free(f);
}

/* Rows of x through a norm into h. */
static void norm_rows(struct forward *f, const struct norm_weights *w)
{
    size_t d = f->params->d_model;
    float eps = f->params->norm_eps;
    for (uint32_t t = 0; t < f->n; t++)
        if (w->bias)
            f->kernels->layer_norm(f->x + t * d, w->weight, w->bias, eps, d, f->h + t * d);
        else
            f->kernels->rms_norm(f->x + t * d, w->weight, eps, d, f->h + t * d);
}

/* What a layer's gate makes of a: each token's experts, and their weights. */
static void route(struct forward *f, const struct layer_weights *w, const struct activations *a,
                  uint32_t *selected, float *weights)
{
    const struct router_params *r = &f->params->router;
    exec_multiply(f->exec, &w->router, a, f->router, r->n_experts, false);
    forward_add_bias(f, f->router, w->router_bias, r->n_experts);
    for (uint32_t t = 0; t < f->n; t++)
        router_select(r, f->router + (size_t)t * r->n_experts, w->selection_bias,
                      selected + (size_t)t * r->n_used, weights + (size_t)t * r->n_used);
}

/* out [n][d_model] (+)= down(act(gate h) * up h), the FFN of every token. */
static void plain_ffn(struct forward *f, const struct matrix *gate, const struct matrix *up,
                      const struct matrix *down, const struct activations *a, float *out,
                      bool accumulate)
{
    uint32_t width = gate->rows;
    exec_multiply(f->exec, gate, a, f->ffn_gate, width, false);
    exec_multiply(f->exec, up, a, f->ffn_up, width, false);
    f->kernels->gated(f->params->arch->activation, f->ffn_gate, f->ffn_up, f->ffn_gate,
                      (size_t)f->n * width);
    const struct activations *hidden =
        exec_prepare(f->exec, 0, f->ffn_gate, width, f->n, width, weights_quantize(down));
    exec_multiply(f->exec, down, hidden, out, f->params->d_model, accumulate);
}

/* shared_out = the shared expert, times sigmoid(gate . h) where it has a gate, while the routed experts are
 * computed. */
static void shared_expert(struct forward *f, const struct layer_weights *w,
                          const struct activations *a)
{
    const struct model_params *p = f->params;
    if (w->shared_gate_input.tiles) /* first: a is overwritten below */
        exec_multiply(f->exec, &w->shared_gate_input, a, f->shared_scale, 1, false);
    plain_ffn(f, &w->shared_gate, &w->shared_up, &w->shared_down, a, f->shared_out, false);
    for (uint32_t t = 0; t < f->n && w->shared_gate_input.tiles; t++) {
        float scale = 1.0f / (1.0f + kernels_exp(-f->shared_scale[t]));
        float *row = f->shared_out + (size_t)t * p->d_model;
        for (uint32_t i = 0; i < p->d_model; i++)
            row[i] *= scale;
    }
}

/* A layer without experts: x += FFN of the normed x. */
static void run_dense_ffn(struct forward *f, const struct layer_weights *w)
{
    uint32_t d = f->params->d_model;
    norm_rows(f, &w->ffn_norm);
    bool quantize = weights_quantize(&w->dense_gate) || weights_quantize(&w->dense_up);
    const struct activations *a = exec_prepare(f->exec, 0, f->h, d, f->n, d, quantize);
    plain_ffn(f, &w->dense_gate, &w->dense_up, &w->dense_down, a, f->x, true);
}

struct combine_job {
    struct forward *f;
    const struct layer_weights *w;
};

/* x += sum over ranks of weight * (expert, then its bias), in rank order, plus the shared expert. */
static void combine_token(void *arg, unsigned thread, uint32_t t)
{
    const struct combine_job *job = arg;
    struct forward *f = job->f;
    size_t d = f->params->d_model;
    uint32_t n_used = f->params->router.n_used;
    float *sum = f->h + t * d; /* the experts' input is no longer needed */
    (void)thread;
    memset(sum, 0, d * sizeof *sum);
    for (uint32_t k = 0; k < n_used; k++) {
        float weight = f->weights_of[t * n_used + k];
        f->kernels->axpy(weight, experts_row(f->experts, t, k), sum, d);
        if (job->w->down_bias)
            f->kernels->axpy(weight, job->w->down_bias + f->selected[t * n_used + k] * d, sum, d);
    }
    if (f->params->d_shared)
        f->kernels->add(f->shared_out + t * d, sum, d);
    f->kernels->add(sum, f->x + t * d, d);
}

/* What layers to come would activate, were their gates' input what the predictor says: for who copies experts ahead.
 * a: seen->hidden, prepared for the next layer's gate too. */
static void guess_ahead(struct forward *f, const struct predict_seen *seen,
                        const struct activations *a)
{
    struct predict_target target;
    const float *input;
    for (uint32_t i = 0; experts_predict_gate(f->experts, *seen, i, &target, &input); i++) {
        const struct layer_weights *w = &f->weights->layers[target.layer];
        size_t d = f->params->d_model;
        const struct activations *in = a;
        if (input != seen->hidden || target.layer != seen->layer + 1)
            in =
                exec_prepare(f->exec, 1, input, d, f->n, (uint32_t)d, weights_quantize(&w->router));
        route(f, w, in, f->guessed, f->guessed_weights);
        experts_predict_guess(f->experts, *seen, &target, f->guessed);
    }
}

static void record(struct forward *f, uint32_t layer)
{
    const struct model_params *p = f->params;
    for (uint32_t t = 0; t < f->n; t++)
        if (f->batch[t].recording)
            recording_layer(f->batch[t].recording, f->batch[t].position, layer,
                            f->selected + (size_t)t * p->router.n_used,
                            f->router + (size_t)t * p->router.n_experts,
                            f->h + (size_t)t * p->d_model);
}

static enum error_code run_experts(struct forward *f, uint32_t layer, struct error *e)
{
    const struct model_params *p = f->params;
    const struct layer_weights *w = &f->weights->layers[layer];
    experts_look(f->experts, layer); /* what came meanwhile, the first layer's above all */
    norm_rows(f, &w->ffn_norm);
    bool quantize = weights_quantize(&w->router) || weights_quantize(&w->shared_gate) ||
                    weights_quantize(&w->shared_up) || weights_quantize(&w->shared_gate_input) ||
                    (layer + 1 < p->n_layers && weights_quantize(&w[1].router)); /* guess_ahead */
    const struct activations *a =
        exec_prepare(f->exec, 0, f->h, p->d_model, f->n, p->d_model, quantize);
    route(f, w, a, f->selected, f->weights_of);
    experts_begin(f->experts, layer, f->h, f->n, f->selected, f->one_request);
    struct predict_seen seen = {.layer = layer,
                                .n_tokens = f->n,
                                .tokens = f->shown,
                                .hidden = f->h,
                                .gate = f->router,
                                .selected = f->selected};
    experts_show(f->experts, seen);
    if (f->recorded)
        record(f, layer);
    guess_ahead(f, &seen, a); /* overwrites the gate's probabilities */
    if (p->d_shared)
        shared_expert(f, w, a);
    enum error_code code = experts_finish(f->experts, e);
    if (code)
        return code;
    struct combine_job job = {f, w};
    if (f->n < 4)
        for (uint32_t t = 0; t < f->n; t++)
            combine_token(&job, 0, t);
    else
        exec_each(f->exec, combine_token, &job, f->n);
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
            f->rope[((size_t)t * half + i) * 2] = (float)(r->magnitude * cos(angle));
            f->rope[((size_t)t * half + i) * 2 + 1] = (float)(r->magnitude * sin(angle));
        }
}

const float *forward_run(struct forward *f, const struct batch_token *batch, uint32_t n,
                         bool one_request, struct error *e)
{
    const struct model_params *p = f->params;
    exec_allow_blas(f->exec, one_request);
    f->one_request = one_request;
    f->batch = batch;
    f->n = n;
    f->recorded = false;
    for (uint32_t t = 0; t < n; t++) {
        tile_unpack_row(&f->weights->embedding, batch[t].token, f->x + (size_t)t * p->d_model);
        f->recorded |= batch[t].recording != NULL;
    }
    for (uint32_t t = 0; t < n && t < PREDICT_MAX_TOKENS; t++)
        f->shown[t] = (struct predict_token){batch[t].request, batch[t].position};
    experts_show(f->experts, (struct predict_seen){.layer = PREDICT_EMBEDDING,
                                                   .n_tokens = n,
                                                   .tokens = f->shown,
                                                   .hidden = f->x});
    prepare_rope(f);
    for (uint32_t layer = 0; layer < p->n_layers; layer++) {
        experts_look(f->experts, layer); /* copies go on under attention */
        norm_rows(f, &f->weights->layers[layer].attn_norm);
        forward_attention(f, layer);
        if (layer < p->n_dense)
            run_dense_ffn(f, &f->weights->layers[layer]);
        else if (run_experts(f, layer, e))
            return NULL;
    }
    norm_rows(f, &f->weights->output_norm);
    return f->h;
}

void forward_logits(struct forward *f, const float *hidden, uint32_t n, float *logits)
{
    const struct matrix *output = &f->weights->output;
    const struct activations *a = exec_prepare(f->exec, 0, hidden, f->params->d_model, n,
                                               f->params->d_model, weights_quantize(output));
    exec_multiply(f->exec, output, a, logits, f->params->vocab, false);
    for (uint32_t t = 0; f->weights->output_bias && t < n; t++)
        f->kernels->add(f->weights->output_bias, logits + (size_t)t * f->params->vocab,
                        f->params->vocab);
}
