/* The default of --batch on a device; see batch_plan.h. */
#include "device/batch_plan.h"

#include "base/checked.h"
#include "model/serving_limits.h"

#define MOST_PART 16 /* of the free memory, for the scratch and KV cache of a larger batch */

/* Plans with a batch of so many tokens. */
static enum device_part share(const struct worker_memory_needs *needs, uint32_t batch,
                              struct device_plan *p)
{
    struct worker_memory_needs with = *needs;
    struct worker_memory capacity;
    with.max_tokens = serving_batch_tokens(batch, needs->parallel);
    worker_memory(&with, &capacity);
    uint64_t workers = p->workers ? p->workers : 1;
    if (!checked_mul(capacity.scratch_bytes, workers, &p->scratch_bytes) ||
        !checked_mul(capacity.kv_bytes, workers, &p->kv_bytes))
        p->scratch_bytes = UINT64_MAX; /* which does not fit */
    return device_share(p);
}

/* Layers with a window keep the positions of a batch. */
static uint64_t more_bytes(const struct device_plan *large, const struct device_plan *least)
{
    return large->scratch_bytes + large->kv_bytes - least->scratch_bytes - least->kv_bytes;
}

uint32_t batch_plan(const struct worker_memory_needs *needs, const struct device_plan *p)
{
    struct device_plan least = *p;
    if (share(needs, BATCH_LEAST, &least))
        return BATCH_LEAST;
    for (uint32_t most = BATCH_ON_DEVICE; most > BATCH_LEAST; most /= 2) {
        struct device_plan large = *p;
        uint32_t batch = serving_batch(most, needs->context);
        if (!share(needs, batch, &large) &&
            more_bytes(&large, &least) <= p->free_bytes / MOST_PART &&
            (least.n_slots < device_share_most_slots(p) || large.n_slots == least.n_slots))
            return batch;
    }
    return BATCH_LEAST;
}

uint32_t batch_plan_known(const struct device_spec *s, const struct model_params *p, uint32_t asked,
                          uint32_t context)
{
    if (asked || s->kind != DEVICE_EMU)
        return asked;
    return serving_batch(BATCH_READ_ONCE, serving_context(p, context, UINT32_MAX, true));
}
