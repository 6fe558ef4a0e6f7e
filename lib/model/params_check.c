/* Checks hyper-parameters from a process that is not believed; see params.h. The ranges are those
 * of params.c. What must agree with the tensors is the plan's task. */
#include "params_internal.h"

#include "model/published.h"
#include "model/router.h"

#include <math.h>
#include <string.h>

static bool within(uint32_t value, uint32_t least, uint32_t most)
{
    return value >= least && value <= most;
}

static bool finite_between(float value, float least, float most)
{
    return isfinite(value) && value >= least && value <= most;
}

static bool is_limit(float value)
{
    return value >= 0 && value < 1e30f;
}

/* Reading another byte as a bool is undefined. */
static bool is_bool(const bool *value)
{
    unsigned char byte;
    memcpy(&byte, value, 1);
    return byte <= 1;
}

static bool check_attention_layer(const struct model_params *p, const struct layer_params *l)
{
    bool sizes = within(l->n_heads, 1, PARAMS_MAX_HEADS) && within(l->n_kv_heads, 1, l->n_heads) &&
                 l->n_heads % l->n_kv_heads == 0 && within(l->q_dim, 1, PARAMS_MAX_HEAD_DIM) &&
                 within(l->o_dim, 1, PARAMS_MAX_HEAD_DIM) && l->window <= PARAMS_MAX_CONTEXT + 1;
    if (!sizes)
        return false;
    if (p->kv_rank) /* latent: one compressed row */
        return l->n_kv_heads == 1 && p->rope.dims < l->q_dim && l->v_dim == p->kv_rank &&
               l->k_dim == p->kv_rank + p->rope.dims;
    return l->k_dim == l->q_dim && l->v_dim == l->o_dim;
}

static bool check_blocks(const struct model_params *p, const struct layer_blocks *b)
{
    return b->recurrent < p->n_blocks && b->attention < p->n_blocks &&
           b->feed_forward < p->n_blocks;
}

static bool check_layer(const struct model_params *p, uint32_t i)
{
    const struct layer_params *l = &p->layers[i];
    const struct rope_params *rope = params_rope(p, i);
    bool good = check_blocks(p, &l->blocks) && is_bool(&l->unrotated) &&
                (unsigned)l->feed_forward <= FEED_FORWARD_DENSE &&
                (l->feed_forward == FEED_FORWARD_DENSE) == (i < p->n_dense) &&
                is_limit(l->expert_limit) && is_limit(l->shared_limit);
    switch ((unsigned)l->kind) {
    case LAYER_ATTENTION:
        return good && check_attention_layer(p, l) && rope->dims <= l->q_dim;
    case LAYER_MAMBA2_ATTENTION:
        return good && p->delta.v_heads && check_attention_layer(p, l) && rope->dims <= l->q_dim;
    case LAYER_MAMBA2:
    case LAYER_DELTA_NET:
        return good && p->delta.v_heads && !l->n_heads && !l->n_kv_heads && !l->window;
    case LAYER_SHORT_CONVOLUTION:
        return good && p->delta.taps && !p->delta.v_heads && !l->n_heads && !l->n_kv_heads &&
               !l->window;
    }
    return false;
}

static bool check_delta(const struct delta_params *d)
{
    if (d->taps == 0)
        return !d->k_heads && !d->v_heads && !d->k_dim && !d->v_dim;
    if (!within(d->taps, 2, PARAMS_MAX_TAPS))
        return false;
    if (d->v_heads == 0)
        return !d->k_heads && !d->k_dim && !d->v_dim;
    return within(d->k_heads, 1, PARAMS_MAX_HEADS) && within(d->v_heads, 1, PARAMS_MAX_HEADS) &&
           d->v_heads % d->k_heads == 0 && within(d->k_dim, 1, DELTA_KEY_MOST) &&
           within(d->v_dim, 1, PARAMS_MAX_HEAD_DIM) && d->v_heads * d->v_dim <= PARAMS_MAX_WIDTH;
}

static bool check_rope(const struct rope_params *r)
{
    return (unsigned)r->scaling <= ROPE_SCALING_LONG && r->dims <= PARAMS_MAX_HEAD_DIM &&
           r->dims % 2 == 0 && finite_between(r->base, 0, 1e12f) &&
           finite_between(r->factor, 0, 1e6f) && r->original_context <= PARAMS_MAX_CONTEXT &&
           finite_between(r->beta_fast, 0, 1e6f) && finite_between(r->beta_slow, 0, 1e6f) &&
           finite_between(r->magnitude, 0, 1e3f) && is_bool(&r->exact_ramp);
}

static bool check_router(const struct router_params *r)
{
    return is_bool(&r->renormalise) && (unsigned)r->kind <= ROUTER_SPARSE_MIXER &&
           within(r->n_experts, 1, ROUTER_MAX_EXPERTS) && within(r->n_used, 1, r->n_experts) &&
           r->n_groups <= ROUTER_MAX_GROUPS &&
           (!r->n_groups ||
            (r->n_experts % r->n_groups == 0 && within(r->n_groups_used, 1, r->n_groups) &&
             r->n_groups_used * (r->n_experts / r->n_groups) >= r->n_used)) &&
           finite_between(r->scale, 0, 1e6f) && finite_between(r->weight_sum_eps, 0, 1) &&
           finite_between(r->weight_sum_least, 0, 1);
}

static bool check_sizes(const struct model_params *p)
{
    return within(p->n_layers, 1, PARAMS_MAX_LAYERS) &&
           within(p->n_blocks, p->n_layers, PARAMS_MAX_LAYERS) &&
           p->n_further <= PARAMS_MAX_LAYERS && within(p->d_model, 1, PARAMS_MAX_WIDTH) &&
           p->q_rank <= PARAMS_MAX_WIDTH && p->kv_rank <= PARAMS_MAX_WIDTH &&
           within(p->d_expert, 1, PARAMS_MAX_WIDTH) && p->d_shared <= PARAMS_MAX_WIDTH &&
           p->n_dense < p->n_layers && p->d_dense <= PARAMS_MAX_WIDTH &&
           (!p->n_dense || p->d_dense) && within(p->vocab, 1, PARAMS_MAX_VOCAB) &&
           within(p->context_trained, 1, PARAMS_MAX_CONTEXT) && p->published <= PUBLISHED_ALL &&
           p->context_most <= PARAMS_MAX_CONTEXT && p->temperature_length <= PARAMS_MAX_CONTEXT &&
           (p->temperature_scale == 0 || p->temperature_length) &&
           (p->kv_rank > 0) == (p->arch->attention == ATTENTION_LATENT);
}

static bool check_numbers(const struct model_params *p)
{
    return (unsigned)p->norm <= NORM_LAYER && finite_between(p->attention_scale, 0, 1e6f) &&
           finite_between(p->logit_scale, 1e-6f, 1e6f) && finite_between(p->value_scale, 0, 1e6f) &&
           finite_between(p->temperature_scale, 0, 100) && finite_between(p->norm_eps, 0, 1) &&
           finite_between(p->logit_cap, 0, 1e6f);
}

enum error_code model_params_check(const struct model_params *p, struct error *e)
{
    bool sane = memchr(p->name, 0, sizeof p->name) && check_sizes(p) && check_numbers(p) &&
                check_rope(&p->rope) && check_rope(&p->windowed_rope) && check_delta(&p->delta) &&
                check_router(&p->router);
    for (uint32_t i = 0; sane && i < p->n_layers; i++)
        sane = check_layer(p, i);
    if (sane && params_attends(params_attention(p)))
        return ERROR_OK;
    return error_set(e, ERROR_PROTOCOL,
                     "the process that reads the model's metadata returned hyper-parameters that "
                     "cannot be");
}
