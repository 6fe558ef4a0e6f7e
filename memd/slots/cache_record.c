/* Checking records; see cache_record.h. */
#include "cache_record.h"

#include <math.h>

/* The CPU's costs may be infinite: there is no CPU executor. */
static const char *check_costs(const struct cache_record *r)
{
    const float costs[] = {
        r->costs.load,      r->costs.load_contended,      r->costs.device,    r->costs.device_token,
        r->costs.cpu_token, r->costs.cpu_contended_token, r->costs.attention, r->costs.head};
    if (isnan(r->costs.cpu) || isnan(r->costs.cpu_contended) || r->costs.cpu < 0 ||
        r->costs.cpu_contended < 0)
        return "costs that are negative or not a number";
    for (size_t i = 0; i < sizeof costs / sizeof *costs; i++)
        if (!(costs[i] >= 0 && costs[i] <= CACHE_RECORD_COST_MOST))
            return "costs that are negative or too large";
    return NULL;
}

const char *cache_record_check(const struct cache_record *r, enum cache_record_kind asking,
                               const struct pool_slabs *slabs, uint32_t n_layers)
{
    if (r->kind == CACHE_COSTS && asking == CACHE_LOAD)
        return check_costs(r);
    if (r->kind == CACHE_MEASURED && asking == CACHE_LOAD)
        return NULL;
    bool for_policy =
        (r->kind == CACHE_SCORES || r->kind == CACHE_EXPECTED) && asking == CACHE_LOAD;
    if (r->kind != CACHE_ROUTED && r->kind != CACHE_PREDICTED && r->kind != (uint32_t)asking &&
        !for_policy)
        return "a record of an unknown kind";
    if (r->n_entries > CACHE_RECORD_ENTRIES)
        return "a record of more entries than it holds";
    if (r->layer >= n_layers)
        return "a layer that the model does not have";
    const struct pool_slabs *s = &slabs[r->layer];
    for (uint32_t i = 0; i < r->n_entries; i++) {
        if (r->entries[i].expert >= s->n_experts)
            return "an expert that its layer does not have";
        if (r->kind == CACHE_LOAD &&
            (r->entries[i].value == 0 || r->entries[i].value > s->n_segments))
            return "a load of more segments than the expert has, or of none";
    }
    return NULL;
}
