/* The worker's scratch; see host_scratch.h. tests/unit/test_host_scratch.c compares it with what a
 * worker allocates. */
#include "model/host_scratch.h"

#include "base/checked.h"
#include "ipc/expert_channel.h"
#include "kernels/kernels.h"
#include "model/pool_map.h"

enum {
    INPUTS = 4,                /* prepared inputs of products: EXEC_SLOTS */
    TABLES_BYTES = 1224 << 10, /* of chunks and parts, whatever the batch */
    ATTEND_SLOTS = 16,         /* of attention, a thread */
    SMALL_ROW_BYTES = 128      /* of a row's entries in tables */
};

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* lib/exec: the prepared inputs, and the experts' values between gate and down. */
static uint64_t product_bytes(const struct model_params *p, uint32_t max_tokens, unsigned threads,
                              uint64_t packed)
{
    uint64_t cols = params_widest_input(p), width = round_up(p->d_expert, TILE_ROWS);
    uint32_t tasks = max_tokens * p->router.n_used;
    uint64_t sum = INPUTS * act_bytes((uint32_t)cols, max_tokens);
    sum += 3 * tasks * width * sizeof(float);
    sum += act_bytes(p->d_expert + 64 * POOL_MAX_SEGMENTS, tasks);
    return sum + threads * packed;
}

/* worker/forward/dense_host.c and lib/exec/attention.c, a thread. */
static uint64_t thread_bytes(const struct model_params *p, uint32_t max_tokens)
{
    const struct params_most most = params_most(p);
    uint64_t part = round_up(most.v_dim, 16) * sizeof(float) + sizeof(struct attend_part);
    uint64_t sum = ATTEND_SLOTS * ATTEND_QUERIES * part + p->d_model * sizeof(float);
    sum += kernels_get()->attend_scratch(most.k_dim, most.v_dim);
    if (p->kv_rank)
        sum += act_bytes(params_head_input(p), max_tokens);
    return sum;
}

/* Of a row in layers that are recurrent, and their gates. */
static uint64_t recurrent_floats(const struct model_params *p)
{
    const struct delta_params *d = &p->delta;
    uint64_t channels = params_convolved(p), values = (uint64_t)d->v_heads * d->v_dim;
    if (d->v_heads)
        return 2 * channels + 3 * values + 5 * (uint64_t)d->v_heads;
    return p->arch->short_convolutions ? 4 * (uint64_t)p->d_model : 0;
}

/* Of a row: worker/forward/scratch.c. */
static uint64_t forward_floats(const struct model_params *p)
{
    const struct architecture *a = p->arch;
    const struct params_most most = params_most(p);
    uint64_t d = p->d_model, heads = (uint64_t)most.q + most.k + most.v + most.attended;
    uint64_t latent = p->kv_rank ? p->q_rank + (uint64_t)most.heads * (most.k_dim + p->kv_rank) : 0;
    uint64_t gates = a->query_gate ? 3 * (uint64_t)most.q : a->output_gate ? most.attended : 0;
    uint64_t routing = 2 * (uint64_t)p->router.n_experts + 8 * (uint64_t)p->router.n_used;
    uint64_t streams =
        3 + (a->router_norm ? 1 : 0) + (a->post_norms ? 1 : 0) + (a->parallel ? 1 : 0);
    return streams * d + heads + latent + gates + routing + params_angles(p) +
           2 * larger(p->d_shared, p->d_dense) + recurrent_floats(p);
}

uint64_t host_scratch_bytes(const struct model_params *p, uint32_t max_tokens, unsigned threads,
                            uint64_t packed)
{
    const struct params_most most = params_most(p);
    uint64_t row = forward_floats(p) * sizeof(float) + SMALL_ROW_BYTES;
    row += (uint64_t)p->router.n_used * p->d_model * sizeof(float); /* the experts' rows */
    row += (uint64_t)most.heads * sizeof(struct attend_part);
    return TABLES_BYTES + max_tokens * row + threads * thread_bytes(p, max_tokens) +
           product_bytes(p, max_tokens, threads, packed);
}

uint64_t host_scratch_executor_bytes(const struct model_params *p, uint32_t max_tokens,
                                     unsigned threads, uint64_t packed)
{
    return TABLES_BYTES + product_bytes(p, max_tokens, threads, packed) +
           expert_channel_bytes(max_tokens, p->router.n_used, p->router.n_experts, p->d_model);
}
