/* The plan of a worker's device memory; see worker_memory.h. */
#include "device/worker_memory.h"

#include "base/checked.h"
#include "model/kv_layout.h"

#include <string.h>

#define ALIGN_BYTES 256 /* of each buffer */

struct device_segments device_segments_of(const struct pool_map *map, uint32_t layer)
{
    const struct pool_slabs *s = &map->slabs[layer];
    struct gating gating = params_expert_gating(&map->params, layer);
    return (struct device_segments){.d_model = s->d_model,
                                    .width = s->segment_width,
                                    .gate_type = s->gate_type,
                                    .up_type = s->up_type,
                                    .down_type = s->down_type,
                                    .up_offset = s->up_offset,
                                    .down_offset = s->down_offset,
                                    .bias_offset = s->bias_offset,
                                    .activation = (uint32_t)gating.activation,
                                    .limit = gating.limit};
}

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* UINT64_MAX on overflow. */
static uint64_t product(uint64_t a, uint64_t b)
{
    uint64_t out;
    return checked_mul(a, b, &out) ? out : UINT64_MAX;
}

static void add(uint64_t *sum, uint64_t bytes)
{
    if (bytes > UINT64_MAX - ALIGN_BYTES || !checked_add(*sum, round_up(bytes, ALIGN_BYTES), sum))
        *sum = UINT64_MAX;
}

uint64_t worker_memory_kv(const struct model_params *p, enum tensor_type type, uint32_t requests,
                          uint32_t context, uint32_t max_tokens)
{
    struct kv_layout kv;
    kv_layout_make(p, type, &kv);
    return product(kv.page_bytes, product(requests, kv_layout_pages(&kv, context, max_tokens)));
}

/* Of the addresses of all slots' pages of all groups. */
static uint64_t page_tables(const struct worker_memory_needs *n)
{
    struct kv_layout kv;
    kv_layout_make(&n->map->params, n->kv_type, &kv);
    uint64_t pages = ((uint64_t)n->context + DEVICE_PAGE - 1) / DEVICE_PAGE;
    return product(product(n->parallel, kv.n_groups * sizeof(uint64_t)), pages);
}

uint64_t worker_memory_experts(const struct device_module *module, const struct pool_map *map,
                               uint32_t max_rows)
{
    uint64_t most = 0;
    for (uint32_t layer = 0; layer < map->params.n_layers; layer++) {
        const struct pool_slabs *s = &map->slabs[layer];
        if (!s->n_experts)
            continue;
        struct device_segments layout = device_segments_of(map, layer);
        most = larger(most, module->ops.experts_scratch_bytes(&layout, s->n_experts * s->n_segments,
                                                              max_rows * s->n_segments));
    }
    return most;
}

/* worker/experts/device_only.c: the table of all segments, the choices of every layer, and the work
 * table of one layer. */
static uint64_t device_only_scratch(const struct worker_memory_needs *n)
{
    const struct pool_map *map = n->map;
    const struct router_params *r = &map->params.router;
    uint32_t n_segments = pool_map_most_segments(map);
    uint64_t sum = ALIGN_BYTES; /* the number of a layer that missed an expert */
    add(&sum, product(product(map->params.n_layers, r->n_experts), n_segments * sizeof(void *)));
    add(&sum,
        product(map->params.n_layers, WORKER_DEVICE_ONLY_TOKENS * r->n_used * sizeof(uint32_t)));
    add(&sum, WORKER_DEVICE_ONLY_TOKENS * r->n_used * sizeof(uint32_t));
    add(&sum, n->module->ops.chosen_bytes(WORKER_DEVICE_ONLY_TOKENS, r->n_used, n_segments));
    return sum;
}

/* Of the routed experts: a batch's values, also quantised, their partial sums, and the values
 * between gate and down; and one segment for the calibration, which takes more if memory is free.
 */
static uint64_t expert_scratch(const struct worker_memory_needs *n)
{
    const struct model_params *p = &n->map->params;
    uint32_t rows = n->max_tokens * p->router.n_used;
    uint64_t sum = 0;
    add(&sum, product(n->max_tokens, p->d_model * sizeof(float)));
    add(&sum, product(rows, p->d_model * sizeof(float)));
    add(&sum, n->module->ops.activations_bytes(p->d_model, n->max_tokens));
    add(&sum, worker_memory_experts(n->module, n->map, rows));
    add(&sum, pool_map_largest_segment(n->map));
    return sum;
}

uint64_t worker_memory_attend(const struct device_module *module, const struct model_params *p,
                              uint32_t max_tokens, uint32_t context)
{
    uint64_t most = 0;
    for (const struct layer_params *l = p->layers; l < p->layers + p->n_layers; l++)
        if (params_attends(l))
            most = larger(
                most, module->ops.attend_scratch_bytes(max_tokens, l->n_heads, l->v_dim, context));
    return most;
}

/* Includes the output head, or the embedding, which has its shape, where the head is no tensor of
 * its own. */
uint64_t worker_memory_many(const struct device_module *module, const struct pool_map *map,
                            uint32_t max_tokens)
{
    uint64_t most = 0;
    for (uint32_t i = 0; i < map->header->n_tensors; i++) {
        const struct pool_tensor *t = &map->tensors[i];
        const struct matrix m = {
            .type = (enum tensor_type)t->type, .rows = t->rows, .cols = t->cols};
        if (t->form == POOL_MATRIX)
            most = larger(most, module->ops.multiply_many_scratch_bytes(&m, t->planes, max_tokens));
    }
    return most;
}

/* Of the states of recurrent layers: worker/forward/dense_cuda_recurrent.c. */
static uint64_t states(const struct worker_memory_needs *n)
{
    uint64_t each = params_state_bytes(&n->map->params);
    return each ? product(n->parallel, each + sizeof(struct device_run)) : 0;
}

/* Floats of a row in recurrent layers and gates of queries: worker/forward/scratch.c, and the
 * scratch of dense_cuda_recurrent.c. */
static uint64_t recurrent_floats(const struct model_params *p)
{
    const struct delta_params *d = &p->delta;
    uint64_t channels = params_convolved(p), values = (uint64_t)d->v_heads * d->v_dim;
    if (d->taps == 0)
        return 0;
    if (d->v_heads == 0)
        return 4 * channels;
    return 3 * channels + 3 * values + 5 * (uint64_t)d->v_heads + 3 * (uint64_t)params_most(p).q;
}

/* Floats of a row that some architectures have: the gate of attention's output, what a part adds to
 * the residual stream, the input of a gate that has a norm, and the normed row of a device-only
 * layer. */
static uint64_t further_floats(const struct model_params *p)
{
    const struct architecture *a = p->arch;
    uint64_t d = p->d_model;
    return (a->output_gate ? params_most(p).attended : 0) + (a->post_norms ? d : 0) +
           (a->router_norm ? d : 0) + (a->parallel ? d : 0);
}

/* Floats of a batch's row. In worker/forward/scratch.c: the residual stream, the normed row, the
 * shared expert's; queries, keys, values and attention's result; the gates' logits and choices,
 * real and predicted; the values between gate and down. In worker/forward/dense_cuda.c: the angles,
 * the scale of q and the rows that are brought from the host. */
static uint64_t dense_floats(const struct model_params *p)
{
    const struct params_most most = params_most(p);
    uint64_t heads = (uint64_t)most.q + most.attended + most.k + most.v;
    uint64_t latent = p->kv_rank ? p->q_rank + (uint64_t)most.heads * (most.k_dim + p->kv_rank) : 0;
    uint64_t routing = 2 * (uint64_t)p->router.n_experts + 7 * (uint64_t)p->router.n_used;
    uint64_t feed_forward = 2 * larger(p->d_shared, p->d_dense) + 1;
    uint64_t brought = params_angles(p) + 1 + p->d_model + p->router.n_used;
    return 3 * (uint64_t)p->d_model + heads + latent + routing + feed_forward + brought +
           recurrent_floats(p) + further_floats(p);
}

/* The most buffers of these; each one's size is rounded up. */
#define DENSE_BUFFERS 48

static uint64_t dense_scratch(const struct worker_memory_needs *n)
{
    const struct model_params *p = &n->map->params;
    const struct params_most heads = params_most(p);
    const struct device_ops *ops = &n->module->ops;
    uint32_t logits = worker_logits_rows(n->blas),
             most = n->max_tokens > logits ? n->max_tokens : logits;
    uint64_t sum = DENSE_BUFFERS * ALIGN_BYTES;
    add(&sum, product(most, dense_floats(p) * sizeof(float)));
    add(&sum, product(4, ops->activations_bytes(params_widest_input(p),
                                                most))); /* four inputs: EXEC_SLOTS */
    if (p->kv_rank)                                      /* a matrix a head */
        add(&sum, ops->activations_bytes(params_head_input(p), n->max_tokens * heads.heads));
    add(&sum, worker_memory_attend(n->module, p, n->max_tokens, n->context));
    add(&sum, p->d_model * sizeof(float));
    add(&sum, product(p->vocab, logits * sizeof(float)));
    add(&sum, product(2 * DEVICE_LARGEST, logits * sizeof(uint32_t)));
    add(&sum, ops->largest_scratch_bytes(logits, p->vocab, DEVICE_LARGEST));
    add(&sum, ops->gate_scratch_bytes(p->router.n_experts, p->d_model));
    add(&sum, page_tables(n));
    add(&sum, product(n->max_tokens, sizeof(struct device_row)));
    if (n->blas)
        add(&sum, worker_memory_many(n->module, n->map, n->max_tokens));
    return sum;
}

void worker_memory(const struct worker_memory_needs *n, struct worker_memory *out)
{
    *out = (struct worker_memory){.scratch_bytes = DEVICE_STREAM_BYTES};
    add(&out->scratch_bytes, expert_scratch(n));
    if (!n->dense)
        return;
    out->kv_bytes =
        worker_memory_kv(&n->map->params, n->kv_type, n->kv_requests, n->context, n->max_tokens);
    out->state_bytes = states(n);
    add(&out->scratch_bytes, dense_scratch(n));
    add(&out->scratch_bytes, out->state_bytes);
    add(&out->scratch_bytes, device_only_scratch(n));
}
