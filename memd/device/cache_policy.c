/* The policy of the expert cache: which segments it keeps, of how many slots; see cache_internal.h.
 */
#include "cache_internal.h"

#include <stdlib.h>

static struct sched_cache *new_policy(struct cache *c, enum sched_cache_kind kind,
                                      enum sched_budget budget, uint32_t capacity)
{
    uint8_t *layer_segments = calloc(c->table.n_layers, 1);
    if (!layer_segments)
        return NULL;
    uint32_t first = c->table.n_layers;
    for (uint32_t i = c->table.n_layers; i-- > 0;) {
        layer_segments[i] = (uint8_t)cache_slabs(c, i)->n_segments;
        if (cache_slabs(c, i)->n_experts)
            first = i;
    }
    struct sched_cache_shape shape = {
        .n_layers = c->table.n_layers,
        .n_experts = c->table.n_experts,
        .n_segments = c->table.n_segments,
        .layer_segments = layer_segments,
        .first_layer = first,
        .n_used = c->map.params.router.n_used,
        .capacity = capacity,
    };
    uint64_t buffers = sched_prefetch_buffers(c->options.prefetcher, c->reserve);
    struct sched_cache_options options = {
        .budget = budget, .profile = c->options.profile, .buffers = buffers};
    struct sched_cache *policy = sched_cache_new(kind, &shape, &options);
    free(layer_segments);
    return policy;
}

static void use_policy(struct cache *c, struct sched_cache *policy)
{
    struct sched_cache *old = c->policy;
    struct residency_header *shown = c->residency.base;
    c->policy = policy;
    atomic_store_explicit(&shown->cache_reads, sched_cache_reads(c->kind), memory_order_relaxed);
    if (c->costs.load_s > 0)
        sched_cache_costs(policy, &c->costs);
    transfer_scheduler_use(c->transfers, policy);
    sched_cache_free(old);
}

enum error_code cache_start_policy(struct cache *c, struct error *e)
{
    struct sched_cache *policy =
        new_policy(c, c->options.cache, c->options.budget, c->server.slots.limit - c->reserve);
    if (!policy)
        return error_set(e, ERROR_MEMORY, "no memory for the cache policy");
    c->kind = c->options.cache;
    c->budget = c->options.budget;
    use_policy(c, policy);
    transfer_scheduler_order(c->transfers, c->options.prefetcher);
    return ERROR_OK;
}

enum error_code cache_set_policy(struct cache *c, enum sched_cache_kind kind,
                                 enum sched_budget budget, struct error *e)
{
    pthread_mutex_lock(&c->server.lock);
    struct sched_cache *policy = new_policy(c, kind, budget, c->server.slots.limit - c->reserve);
    if (policy) {
        c->kind = kind;
        c->budget = budget;
        use_policy(c, policy);
        transfer_scheduler_tidy(c->transfers);
    }
    pthread_mutex_unlock(&c->server.lock);
    doorbell_ring(&c->server.bell);
    return policy ? ERROR_OK
                  : error_set(e, ERROR_MEMORY, "no memory for the cache policy %s",
                              sched_cache_name(kind));
}

uint32_t cache_reserve_of(const struct cache *c, uint32_t n_slots)
{
    return transfer_scheduler_reserve(n_slots, c->plan.total_segments,
                                      c->map.params.router.n_used * c->plan.n_segments);
}

enum error_code cache_use_slots(struct cache *c, uint32_t n, struct error *e)
{
    uint32_t reserve = cache_reserve_of(c, n);
    bool resized = sched_cache_resize(c->policy, n - reserve);
    struct sched_cache *policy = resized ? NULL : new_policy(c, c->kind, c->budget, n - reserve);
    if (!resized && !policy)
        return error_set(e, ERROR_MEMORY, "no memory for the cache policy %s",
                         sched_cache_name(c->kind));
    struct residency_header *shown = c->residency.base;
    c->reserve = reserve;
    cache_slots_limit(&c->server.slots, n);
    transfer_scheduler_resize(c->transfers, n, reserve);
    if (policy)
        use_policy(c, policy);
    atomic_store_explicit(&shown->n_slots, n, memory_order_relaxed);
    atomic_store_explicit(&shown->n_spare, reserve, memory_order_relaxed);
    return ERROR_OK;
}

void cache_set_prefetcher(struct cache *c, enum sched_prefetcher prefetcher)
{
    pthread_mutex_lock(&c->server.lock);
    c->options.prefetcher = prefetcher;
    transfer_scheduler_order(c->transfers, prefetcher);
    pthread_mutex_unlock(&c->server.lock);
    doorbell_ring(&c->server.bell);
}
