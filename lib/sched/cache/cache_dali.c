/* DALI's workload-aware cache (its section 4.3). Each layer caches the same number of whole
 * experts, at first random ones. Scores add up the tokens of each step. Every w_size steps the
 * u_size highest-scored uncached experts replace the u_size lowest-scored cached ones, and the
 * scores start again at 0. Demanded loads do not enter. Of equal scores the lower number goes.
 *
 * Departures, where the paper's listing and its text differ: the lowest scores go out (the listing
 * has TopK for them), and a swap comes after each w_size steps, not at the first (`i mod w == 0`
 * is taken for i + 1). As in the paper it swaps even for an expert that scores less; the kind
 * `workload-guarded` (ours) only for one that scores more. */
#include "base/arrays.h"
#include "sched/cache/cache_target.h"

/* The most experts that one swap exchanges. */
enum { U_SIZE_MAX = 64 };

struct workload_cache {
    struct cache_target target;
    uint64_t *scores; /* [layer][expert] tokens since the last swap */
    uint32_t *steps;  /* [layer] since the last swap */
    uint32_t w_size, u_size;
    bool guard;
};

/* Selection sampling: takes each expert with the probability that yields as many as are needed. */
static void start_random(struct sched_cache *c, struct workload_cache *w)
{
    uint64_t state = 1;
    for (uint32_t layer = c->shape.first_layer; layer < c->shape.n_layers; layer++) {
        uint32_t needed = cache_share_experts(c, layer);
        for (uint32_t expert = 0; expert < c->shape.n_experts && needed; expert++) {
            if (cache_random(&state) % (c->shape.n_experts - expert) >= needed)
                continue;
            cache_target_set(c, &w->target, cache_slab(c, layer, expert), c->limit[layer]);
            needed--;
        }
    }
}

static bool dali_init(struct sched_cache *c, const struct sched_cache_options *o)
{
    struct workload_cache *w, new = {0};
    c->state =
        ARRAYS_NEW(ARRAY(w, 1), ARRAY(new.scores, c->n_slabs), ARRAY(new.steps, c->shape.n_layers));
    if (!c->state)
        return false;
    *w = new;
    if (!cache_target_init(c, &w->target))
        return false;
    w->w_size = o && o->dali_w_size ? o->dali_w_size : 4;
    w->u_size = o && o->dali_u_size ? o->dali_u_size : c->shape.n_experts > 16 ? 8 : 1;
    if (w->u_size > U_SIZE_MAX)
        w->u_size = U_SIZE_MAX;
    w->guard = c->kind == CACHE_DALI_GUARDED;
    start_random(c, w);
    return true;
}

static void dali_fini(struct sched_cache *c)
{
    struct workload_cache *w = c->state;
    cache_target_fini(&w->target);
}

static void dali_activated(struct sched_cache *c, uint32_t slab, uint32_t workload)
{
    struct workload_cache *w = c->state;
    w->scores[slab] += workload;
}

/* Up to u_size of a layer's cached experts, lowest scores first, or of its uncached ones, highest
 * first. */
static uint32_t select_experts(const struct sched_cache *c, const struct workload_cache *w,
                               uint32_t layer, bool cached, uint32_t *out)
{
    uint32_t first = cache_slab(c, layer, 0), n = 0;
    for (uint32_t i = first; i < first + c->shape.n_experts; i++) {
        if ((w->target.segments[i] > 0) != cached)
            continue;
        uint32_t at = n;
        while (at > 0 && (cached ? w->scores[i] < w->scores[out[at - 1]]
                                 : w->scores[i] > w->scores[out[at - 1]]))
            at--;
        if (at == w->u_size)
            continue;
        n += n < w->u_size;
        for (uint32_t k = n - 1; k > at; k--)
            out[k] = out[k - 1];
        out[at] = i;
    }
    return n;
}

static void swap(struct sched_cache *c, struct workload_cache *w, uint32_t layer)
{
    uint32_t in[U_SIZE_MAX], out[U_SIZE_MAX];
    uint32_t n_in = select_experts(c, w, layer, false, in);
    uint32_t n_out = select_experts(c, w, layer, true, out);
    for (uint32_t i = 0; i < n_in && i < n_out; i++) {
        if (w->guard && w->scores[in[i]] <= w->scores[out[i]])
            break;
        cache_target_set(c, &w->target, out[i], 0);
        cache_target_set(c, &w->target, in[i], c->limit[layer]);
    }
}

static void dali_step_over(struct sched_cache *c, uint32_t layer)
{
    struct workload_cache *w = c->state;
    if (++w->steps[layer] < w->w_size)
        return;
    swap(c, w, layer);
    w->steps[layer] = 0;
    uint32_t first = cache_slab(c, layer, 0);
    for (uint32_t i = first; i < first + c->shape.n_experts; i++)
        w->scores[i] = 0;
}

static void dali_changed(struct sched_cache *c, uint32_t slab, uint32_t before)
{
    struct workload_cache *w = c->state;
    cache_target_changed(c, &w->target, slab, before);
}

static bool dali_victim(const struct sched_cache *c, const struct cache_search *s, uint32_t *slab)
{
    const struct workload_cache *w = c->state;
    return cache_target_victim(c, &w->target, s, slab);
}

static bool dali_wanted(struct sched_cache *c, uint64_t free_segments, const struct cache_search *s,
                        uint32_t *slab)
{
    const struct workload_cache *w = c->state;
    return cache_target_wanted(c, &w->target, free_segments, s, slab);
}

const struct cache_policy cache_policy_dali = {
    .keeps_loads = false,
    .init = dali_init,
    .fini = dali_fini,
    .activated = dali_activated,
    .step_over = dali_step_over,
    .changed = dali_changed,
    .victim = dali_victim,
    .wanted = dali_wanted,
};
