/* What keys and values depend on beside the model's file; see kv_arithmetic.h. Field by field,
 * because the bytes between fields are not defined. */
#include "model/kv_arithmetic.h"

#include "base/checksum.h"

#include <stddef.h>

#define MIX(sum, field) ((sum) = checksum64(sum, &(field), sizeof(field)))

/* A struct of another size has another field: mix it too. These have no bytes between fields. */
_Static_assert(sizeof(struct delta_params) == 5 * 4, "struct delta_params");
_Static_assert(sizeof(struct layer_blocks) == 3 * 4, "struct layer_blocks");
/* And these have some behind a bool. */
_Static_assert(sizeof(struct rope_params) == 9 * 4, "struct rope_params");
_Static_assert(sizeof(struct router_params) == 9 * 4, "struct router_params");
_Static_assert(sizeof(struct layer_params) == 15 * 4, "struct layer_params");
_Static_assert(offsetof(struct model_params, layers) - offsetof(struct model_params, n_layers) ==
                   54 * 4,
               "struct model_params");

static uint64_t mix_router(uint64_t sum, const struct router_params *r)
{
    MIX(sum, r->kind);
    MIX(sum, r->n_experts);
    MIX(sum, r->n_used);
    MIX(sum, r->n_groups);
    MIX(sum, r->n_groups_used);
    MIX(sum, r->renormalise);
    MIX(sum, r->scale);
    MIX(sum, r->weight_sum_eps);
    return MIX(sum, r->weight_sum_least);
}

static uint64_t mix_rope(uint64_t sum, const struct rope_params *r)
{
    MIX(sum, r->scaling);
    MIX(sum, r->dims);
    MIX(sum, r->base);
    MIX(sum, r->factor);
    MIX(sum, r->original_context);
    MIX(sum, r->beta_fast);
    MIX(sum, r->beta_slow);
    MIX(sum, r->magnitude);
    return MIX(sum, r->exact_ramp);
}

static uint64_t mix_layer(uint64_t sum, const struct layer_params *l)
{
    MIX(sum, l->kind);
    MIX(sum, l->blocks);
    MIX(sum, l->feed_forward);
    MIX(sum, l->n_heads);
    MIX(sum, l->n_kv_heads);
    MIX(sum, l->q_dim);
    MIX(sum, l->o_dim);
    MIX(sum, l->k_dim);
    MIX(sum, l->v_dim);
    MIX(sum, l->window);
    MIX(sum, l->unrotated);
    MIX(sum, l->expert_limit);
    return MIX(sum, l->shared_limit);
}

uint64_t kv_arithmetic(const struct model_params *p)
{
    uint64_t sum = KV_ARITHMETIC_VERSION;
    MIX(sum, p->n_layers);
    MIX(sum, p->n_blocks);
    MIX(sum, p->n_further);
    MIX(sum, p->d_model);
    MIX(sum, p->q_rank);
    MIX(sum, p->kv_rank);
    MIX(sum, p->attention_scale);
    MIX(sum, p->temperature_scale);
    MIX(sum, p->temperature_length);
    sum = mix_rope(sum, &p->rope);
    sum = mix_rope(sum, &p->windowed_rope);
    MIX(sum, p->delta);
    MIX(sum, p->norm);
    MIX(sum, p->norm_eps);
    sum = mix_router(sum, &p->router);
    MIX(sum, p->d_expert);
    MIX(sum, p->d_shared);
    MIX(sum, p->logit_cap);
    MIX(sum, p->logit_scale);
    MIX(sum, p->value_scale);
    MIX(sum, p->n_dense);
    MIX(sum, p->d_dense);
    MIX(sum, p->vocab);
    MIX(sum, p->context_trained);
    MIX(sum, p->context_most);
    MIX(sum, p->published);
    for (uint32_t i = 0; i < p->n_layers; i++)
        sum = mix_layer(sum, &p->layers[i]);
    return sum;
}
