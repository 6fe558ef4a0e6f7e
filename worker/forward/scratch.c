/* The scratch of one batch: its allocation, and where a batch has what is fetched. */
#include "forward_internal.h"

#include "base/arrays.h"
#include "device/worker_memory.h"

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

void forward_place_fetched(struct forward *f)
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

bool forward_allocate(struct forward *f)
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
