/* Recent activations with several half-lives; see half_lives.h.
 *
 * Nothing is multiplied: each step's activations weigh more than the last step's, by 2^(1 /
 * half-life), which leaves the order the same and touches only what is activated. Long before the
 * numbers overflow, all counts of a half-life are divided by the same power of two. */
#include "sched/cache/half_lives.h"

#include <math.h>
#include <stdlib.h>

#define LARGEST 0x1p500
/* The first choice, and the only one of earlier versions: 32 steps. */
#define FIRST 5
/* Hits count half as much after so many steps. Half as many or twice as many change speeds by less
 * than 1 %; a text that changes is followed within some 30 steps. */
#define SCORED_STEPS 64
/* Another half-life must have so many more hits: a change recomputes every value. */
#define BETTER       1.003
#define CHOOSE_STEPS 16
#define YOUNG_STEPS  64
/* The fits learn from the experts whose count is between these shares of the last one that fits. */
#define MARGIN_FROM 0.7
#define MARGIN_TO   1.4
/* Experts that a threshold is found from, other ones each time: some 30 us a step. */
enum { SAMPLED = 4096 };

static void start(struct half_life *h, double steps)
{
    h->growth = exp2(1 / fmax(steps, 0.01));
    h->now = 1;
}

bool half_lives_init(struct half_lives *h, uint32_t n_slabs, uint64_t kept, double half_life)
{
    *h = (struct half_lives){.n = half_life > 0 ? 1 : HALF_LIVES,
                             .used = half_life > 0 ? 0 : FIRST,
                             .n_slabs = n_slabs,
                             .kept = kept < n_slabs ? (uint32_t)kept : n_slabs};
    for (uint32_t i = 0; i < h->n; i++)
        start(&h->of[i], half_life > 0 ? half_life : (double)(1u << i));
    h->counts = calloc((size_t)n_slabs + 1, sizeof *h->counts);
    h->last = calloc((size_t)n_slabs + 1, sizeof *h->last);
    h->current = calloc((size_t)n_slabs + 1, sizeof *h->current);
    h->loaded = calloc((size_t)n_slabs + 1, sizeof *h->loaded);
    h->scratch = calloc(SAMPLED, sizeof *h->scratch);
    h->share_loaded = 1;
    return h->counts && h->last && h->current && h->loaded && h->scratch;
}

void half_lives_resize(struct half_lives *h, uint64_t kept)
{
    h->kept = kept < h->n_slabs ? (uint32_t)kept : h->n_slabs;
    h->stale = true;
}

void half_lives_fini(struct half_lives *h)
{
    free(h->counts);
    free(h->last);
    free(h->current);
    free(h->loaded);
    free(h->scratch);
}

double half_lives_scale(void)
{
    return 1 / LARGEST;
}

/* ---- Hits ---- */

/* True if the half-life would still keep an expert of this count that it has loaded. */
static double keeps(const struct half_life *h, double count, double now)
{
    double relative = count / now;
    /* Counts that are equal in exact arithmetic differ in their last bits. */
    if (relative > h->threshold * (1 + 1e-9))
        return 1;
    return relative < h->threshold * (1 - 1e-9) ? 0 : h->tied;
}

/* True for a share of the calls. */
static bool comes(struct half_life *h, double share)
{
    h->due += share;
    if (h->due < 1)
        return false;
    h->due -= 1;
    return true;
}

void half_lives_count(struct half_lives *h, uint32_t slab, double weight, bool prompt)
{
    double *counts = h->counts[slab];
    h->current[slab] += prompt ? 0 : weight;
    for (uint32_t i = 0; i < h->n; i++) {
        struct half_life *l = &h->of[i];
        uint8_t bit = (uint8_t)(1u << i);
        double found = h->loaded[slab] & bit ? keeps(l, counts[i], l->now / l->growth) : 0;
        l->layer_hits += weight * found;
        counts[i] += weight * l->now;
        if (found <= 0 && !comes(l, h->share_loaded))
            h->loaded[slab] &= (uint8_t)~bit;
        else
            h->loaded[slab] |= bit;
    }
}

void half_lives_missed(struct half_lives *h, double experts)
{
    h->missed += experts;
}

void half_lives_arrived(struct half_lives *h, double experts)
{
    h->arrived += experts;
}

void half_lives_layer_over(struct half_lives *h, bool counts)
{
    for (uint32_t i = 0; i < h->n; i++) {
        h->of[i].hits += counts ? h->of[i].layer_hits : 0;
        h->of[i].layer_hits = 0;
    }
    h->stale |= !counts;
}

/* ---- The last turn ---- */

void half_lives_observe(struct half_lives *h, uint32_t first, uint32_t end, uint32_t apart)
{
    h->observed = h->n > 1;
    for (uint32_t slab = first; slab < end && h->observed; slab += apart)
        for (uint32_t i = 0; i < h->n; i++) {
            struct half_life *l = &h->of[i];
            double before = h->counts[slab][i] - h->current[slab] * l->now;
            double relative = before * l->growth / l->now; /* as the threshold */
            if (relative > MARGIN_FROM * l->threshold && relative < MARGIN_TO * l->threshold)
                last_turn_observe(&l->last_turn, before * (l->growth - 1) / l->now, h->last[slab],
                                  h->current[slab]);
        }
}

bool half_lives_turn_over(struct half_lives *h, uint32_t slab)
{
    bool less = h->last[slab] > h->current[slab];
    h->last[slab] = h->current[slab];
    h->current[slab] = 0;
    return less;
}

/* ---- Thresholds ---- */

static void swap(double *a, double *b)
{
    double t = *a;
    *a = *b;
    *b = t;
}

/* The k-th largest of v[0..n), from 0. Reorders v. */
static double kth_largest(double *v, uint32_t n, uint32_t k)
{
    uint32_t from = 0, to = n - 1;
    while (from < to) {
        double pivot = v[from + (to - from) / 2];
        uint32_t i = from, j = to;
        for (;;) {
            while (v[i] > pivot)
                i++;
            while (v[j] < pivot)
                j--;
            if (i >= j)
                break;
            swap(&v[i++], &v[j--]);
        }
        if (k <= j)
            to = j;
        else
            from = j + 1;
    }
    return v[k];
}

/* The threshold of one half-life, from every n-th expert that it has loaded. */
static void find_threshold(struct half_lives *h, uint32_t which)
{
    struct half_life *l = &h->of[which];
    uint32_t apart = (h->n_slabs + SAMPLED - 1) / SAMPLED, n = 0, above = 0, equal = 0;
    for (uint32_t i = h->turn % apart; i < h->n_slabs; i += apart)
        if (h->loaded[i] & 1u << which)
            h->scratch[n++] = h->counts[i][which] / l->now;
    uint32_t kept = h->kept / apart;
    l->threshold = 0;
    l->tied = 1;
    if (kept == 0 || kept >= n)
        return;
    l->threshold = kth_largest(h->scratch, n, kept - 1);
    for (uint32_t i = 0; i < n; i++) {
        above += h->scratch[i] > l->threshold * (1 + 1e-9);
        equal += fabs(h->scratch[i] - l->threshold) <= l->threshold * 1e-9;
    }
    l->tied = equal ? (double)(kept - above) / equal : 0;
}

/* In turn, one a step; all of them after a prompt, which moves all counts, and at first, while sums
 * still grow. */
static void find_thresholds(struct half_lives *h)
{
    bool all = h->stale || h->age < YOUNG_STEPS;
    uint32_t n = all ? h->n : 1;
    for (uint32_t i = 0; i < n; i++) {
        find_threshold(h, h->which);
        h->which = (h->which + 1) % h->n;
        h->turn += h->which == 0;
    }
    h->stale = false;
    h->age += h->age < YOUNG_STEPS;
}

/* ---- Steps ---- */

static bool choose(struct half_lives *h)
{
    uint32_t best = h->used;
    if (++h->steps < CHOOSE_STEPS)
        return false;
    for (uint32_t i = 0; i < h->n; i++)
        if (h->of[i].hits > h->of[best].hits)
            best = i;
    if (h->of[best].hits <= BETTER * half_lives_used(h)->hits)
        return false;
    h->used = best;
    h->steps = 0;
    return true;
}

static bool grow(struct half_lives *h, uint32_t which)
{
    struct half_life *l = &h->of[which];
    l->now *= l->growth;
    if (l->now < LARGEST)
        return false;
    for (uint32_t i = 0; i < h->n_slabs; i++)
        h->counts[i][which] *= half_lives_scale();
    l->now *= half_lives_scale();
    return which == h->used;
}

enum half_lives_change half_lives_step_over(struct half_lives *h)
{
    static const double decay = 0.98922801319397548; /* 2^(-1 / SCORED_STEPS) */
    bool rescaled = false;
    if (h->n > 1)
        find_thresholds(h);
    for (uint32_t i = 0; i < h->n; i++) {
        if (h->observed)
            last_turn_step_over(&h->of[i].last_turn);
        h->of[i].hits *= decay;
        rescaled |= grow(h, i);
    }
    h->observed = false;
    h->missed *= decay;
    h->arrived *= decay;
    h->share_loaded = h->arrived < h->missed ? h->arrived / h->missed : 1;
    if (h->n > 1 && choose(h))
        return HALF_LIVES_CHANGED;
    return rescaled ? HALF_LIVES_RESCALED : HALF_LIVES_SAME;
}
