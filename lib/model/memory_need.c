/* Memory needs; see memory_need.h. */
#include "model/memory_need.h"

#include "base/machine_memory.h"
#include "kernels/bf16.h"
#include "model/host_scratch.h"
#include "model/kv_layout.h"
#include "model/serving_limits.h"
#include "model/tier_plan.h"

#include <inttypes.h>
#include <stdio.h>

#define LEAST_PARALLEL       4
#define RESERVE_PART         50
#define SCRATCH_PART         4
#define DEFAULT_STATES_BYTES (256ull << 20)
#define MOST_SNAPSHOTS       256

uint64_t memory_margin_bytes(uint64_t weights_bytes)
{
    const uint64_t least = 64ull << 20, most = 512ull << 20;
    uint64_t margin = weights_bytes / 10;
    return margin < least ? least : margin > most ? most : margin;
}

/* Raises *most to the bytes of a token's inputs that a thread packs for products with such weights
 * (lib/exec/exec.c). */
static void pack_for(uint64_t *most, uint32_t type, uint32_t cols)
{
    uint64_t bytes = type == TENSOR_BF16 && bf16_get() ? BF16_PACKED_BYTES(cols) : 0;
    *most = bytes > *most ? bytes : *most;
}

static uint64_t packed_bytes(const struct pool_plan *plan, uint32_t tokens)
{
    uint64_t most = 0;
    for (uint32_t i = 0; i < plan->header.n_layers; i++) {
        const struct pool_slabs *s = &plan->slabs[i];
        if (s->n_experts == 0)
            continue;
        pack_for(&most, s->gate_type, s->d_model);
        pack_for(&most, s->up_type, s->d_model);
        pack_for(&most, s->down_type, s->segment_width);
    }
    for (uint32_t i = 0; i < plan->header.n_tensors; i++)
        if (plan->tensors[i].form == POOL_MATRIX)
            pack_for(&most, plan->tensors[i].type, plan->tensors[i].cols);
    return tokens * most;
}

uint64_t memory_scratch_bytes(const struct pool_plan *plan, const struct memory_worker *w)
{
    const struct pool_map map = pool_plan_map(plan);
    uint32_t parallel = memory_parallel(&map.params, w->parallel);
    uint32_t tokens = serving_batch_tokens(w->batch ? w->batch : BATCH_LEAST, parallel);
    uint64_t packed = w->reproducible ? 0 : packed_bytes(plan, tokens);
    uint64_t each = host_scratch_bytes(&map.params, tokens, w->threads, packed);
    if (w->cpuexec)
        each += host_scratch_executor_bytes(&map.params, tokens, w->threads, packed);
    return (w->workers ? w->workers : 1) * each;
}

uint32_t memory_batch(const struct pool_plan *plan, const struct memory_worker *w, uint32_t most,
                      uint64_t left)
{
    struct memory_worker with = *w;
    for (with.batch = most; with.batch > BATCH_LEAST;
         with.batch = with.batch / 2 / BATCH_LEAST * BATCH_LEAST)
        if (memory_scratch_bytes(plan, &with) <= left / SCRATCH_PART)
            return with.batch;
    return BATCH_LEAST;
}

uint64_t memory_need_bytes(const struct pool_plan *plan, uint64_t tier_bytes,
                           const struct memory_worker *w)
{
    uint64_t weights = plan->header.bytes + tier_bytes;
    return weights + memory_margin_bytes(weights) + memory_scratch_bytes(plan, w) +
           memory_state_bytes(&plan->header.params, 1);
}

/* Rounded down. */
static void format_ram(uint64_t bytes, char out[24])
{
    if (bytes >= 1000000000)
        snprintf(out, 24, "%" PRIu64 ".%" PRIu64 "G", bytes / 1000000000, bytes / 100000000 % 10);
    else
        snprintf(out, 24, "%" PRIu64 "M", bytes / 1000000);
}

bool memory_need_ram(const struct pool_plan *plan, uint64_t available,
                     const struct memory_worker *w, char out[24])
{
    struct tier_plan tier;
    /* the margin of fewer bytes is not larger */
    uint64_t others = memory_state_bytes(&plan->header.params, 1) + memory_margin_bytes(available) +
                      memory_scratch_bytes(plan, w);
    available -= available / RESERVE_PART; /* less may be free when the model is started */
    if (plan->header.tiered || available <= others)
        return false;
    uint64_t bytes = available - others;
    format_ram(bytes, out);
    if (tier_plan_new(plan, out, &tier, NULL) || !tier.n_slots || bytes <= tier.read_bytes)
        return false;
    format_ram(bytes - tier.read_bytes, out); /* --ram does not count the readers' buffers */
    return tier_plan_new(plan, out, &tier, NULL) == ERROR_OK;
}

/* What to do beside the other advice. */
static void advise(const struct pool_plan *plan, uint64_t tier_bytes, uint64_t available,
                   const struct memory_worker *w, char out[80])
{
    char ram[24];
    if (tier_bytes)
        snprintf(out, 80, "give a smaller --ram");
    else if (memory_need_ram(plan, available, w, ram))
        snprintf(out, 80, "leave some of its experts in the file with --ram %s", ram);
    else
        snprintf(out, 80, "add memory: it is too little for --ram, too");
}

/* Without weights that will lie in reserved huge pages (shm_create_large), which do not count as
 * available. */
static uint64_t need_of_available(const struct pool_plan *plan, uint64_t tier_bytes,
                                  const struct memory_worker *w)
{
    uint64_t weights = plan->header.bytes + tier_bytes, page;
    uint64_t need = memory_need_bytes(plan, tier_bytes, w);
    return weights <= memory_reserved_bytes(&page) ? need - weights : need;
}

uint64_t memory_left_bytes(const struct pool_plan *plan, uint64_t tier_bytes,
                           const struct memory_worker *w)
{
    uint64_t need = need_of_available(plan, tier_bytes, w), available = memory_available_bytes();
    return available > need ? available - need : 0;
}

/* Huge pages that are reserved, and too few for the weights, are lost to everybody. */
static void format_reserved(uint64_t weights, char out[160])
{
    uint64_t page, reserved = memory_reserved_bytes(&page);
    out[0] = '\0';
    if (reserved && reserved < weights)
        snprintf(out, 160,
                 " (in addition to %.2f GB of free reserved huge pages, too few for the weights: "
                 "reserve more, or none with sysctl vm.nr_hugepages)",
                 (double)reserved * 1e-9);
}

enum error_code memory_need_check(const struct pool_plan *plan, uint64_t tier_bytes,
                                  const struct memory_worker *w, struct error *e)
{
    uint64_t weights = plan->header.bytes + tier_bytes;
    uint64_t available = memory_available_bytes();
    if (need_of_available(plan, tier_bytes, w) <= available)
        return ERROR_OK;
    char advice[80], reserved[160];
    advise(plan, tier_bytes, available, w, advice);
    format_reserved(weights, reserved);
    return error_set(e, ERROR_MEMORY,
                     "not enough memory for %s: it needs %.2f GB (%.2f GB of weights, %.2f GB to "
                     "compute), %.2f GB are available%s; end other programs, take a smaller "
                     "quantisation, or %s",
                     plan->header.path, (double)memory_need_bytes(plan, tier_bytes, w) * 1e-9,
                     (double)weights * 1e-9, (double)memory_scratch_bytes(plan, w) * 1e-9,
                     (double)available * 1e-9, reserved, advice);
}

struct memory_kv memory_kv_bytes(const struct model_params *p, enum tensor_type type)
{
    struct kv_layout kv;
    struct memory_kv need = {0};
    kv_layout_make(p, type, &kv);
    for (uint32_t i = 0; i < p->n_layers; i++) {
        uint64_t bytes = (uint64_t)p->layers[i].n_kv_heads *
                         (kv_key_bytes(p, i, type) + kv_value_bytes(p, i, type));
        if (kv.layers[i].group == 0)
            need.a_token += bytes;
        else
            need.a_token_of_window += bytes;
    }
    need.window = kv.window;
    need.window_bytes =
        kv.page_bytes * kv_layout_windowed(&kv) *
        kv_layout_window_pages(&kv, serving_batch_tokens(BATCH_IN_MEMORY, memory_parallel(p, 0)));
    return need;
}

uint32_t memory_parallel(const struct model_params *p, uint64_t asked)
{
    uint32_t parallel = DEFAULT_PARALLEL;
    if (asked)
        return (uint32_t)asked;
    while (parallel > LEAST_PARALLEL && memory_state_bytes(p, parallel) > DEFAULT_STATES_BYTES)
        parallel /= 2;
    return parallel;
}

uint32_t memory_state_snapshots(uint32_t parallel)
{
    return 2 * parallel + 4;
}

uint32_t memory_state_snapshots_in(const struct model_params *p, uint32_t parallel, uint64_t bytes)
{
    uint32_t least = memory_state_snapshots(parallel);
    uint64_t state = params_state_bytes(p), fit = state ? bytes / state : 0;
    fit = fit < MOST_SNAPSHOTS ? fit : MOST_SNAPSHOTS;
    return fit > least ? (uint32_t)fit : least;
}

uint64_t memory_snapshot_bytes(uint64_t kv, uint64_t kv_used, uint64_t available)
{
    enum { KV_PART = 4, FREE_PART = 2 };
    uint64_t unused = kv - kv_used;
    uint64_t beside = available > unused ? (available - unused) / FREE_PART : 0;
    return kv / KV_PART < beside ? kv / KV_PART : beside;
}

uint64_t memory_state_bytes(const struct model_params *p, uint32_t parallel)
{
    return ((uint64_t)parallel + memory_state_snapshots(parallel)) * params_state_bytes(p);
}
