/* Memory needs; see memory_need.h. */
#include "model/memory_need.h"

#include "base/machine_memory.h"

uint64_t memory_margin_bytes(const struct pool_plan *plan)
{
    const uint64_t least = 64ull << 20, most = 512ull << 20;
    uint64_t margin = plan->header.bytes / 10;
    return margin < least ? least : margin > most ? most : margin;
}

enum error_code memory_need_check(const struct pool_plan *plan, struct error *e)
{
    uint64_t need = plan->header.bytes + memory_margin_bytes(plan);
    uint64_t available = memory_available_bytes();
    if (need > available)
        return error_set(
            e, ERROR_MEMORY,
            "not enough memory for %s: it needs %.2f GB (%.2f GB of weights), %.2f GB are "
            "available; end other programs or take a smaller quantisation",
            plan->header.path, (double)need * 1e-9, (double)plan->header.bytes * 1e-9,
            (double)available * 1e-9);
    return ERROR_OK;
}

uint64_t memory_kv_bytes_a_token(const struct model_params *p)
{
    return (uint64_t)p->n_layers * params_cache_rows(p) * params_cache_row(p) * sizeof(float);
}
