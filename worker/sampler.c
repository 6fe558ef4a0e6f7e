/* Sampling; see sampler.h. */
#include "sampler.h"

#include "kernels/kernels.h"

#include <math.h>
#include <stdlib.h>

struct candidate {
    float logit;
    float p;
    uint32_t token;
};

struct sampler {
    uint32_t vocab;
    struct candidate *candidates; /* [vocab] */
    uint8_t *seen;                /* [vocab]: already penalised; zero between calls */
};

struct sampler *sampler_new(uint32_t vocab)
{
    struct sampler *s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    s->vocab = vocab;
    s->candidates = calloc(vocab, sizeof *s->candidates);
    s->seen = calloc(vocab, 1);
    if (!s->candidates || !s->seen) {
        sampler_free(s);
        return NULL;
    }
    return s;
}

void sampler_free(struct sampler *s)
{
    if (!s)
        return;
    free(s->candidates);
    free(s->seen);
    free(s);
}

/* splitmix64 (Steele, Lea, Flood 2014). */
static uint64_t next_random(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15ull;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ z >> 27) * 0x94d049bb133111ebull;
    return z ^ z >> 31;
}

uint64_t sampler_seed(uint64_t seed)
{
    uint64_t state = seed;
    return next_random(&state);
}

/* Whether some of LOOK_AT_ONCE logits is above one: as many comparisons as a vector holds, where the search below is one
 * after the other. */
enum { LOOK_AT_ONCE = 64 };

static bool any_above(const float *logits, float most)
{
    int above = 0;
    for (int i = 0; i < LOOK_AT_ONCE; i++)
        above |= logits[i] > most;
    return above;
}

static uint32_t most_probable(const float *logits, uint32_t n)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < n;) {
        if (n - i >= LOOK_AT_ONCE && !any_above(logits + i, logits[best])) {
            i += LOOK_AT_ONCE;
            continue;
        }
        uint32_t end = n - i >= LOOK_AT_ONCE ? i + LOOK_AT_ONCE : n;
        for (; i < end; i++)
            if (logits[i] > logits[best])
                best = i;
    }
    return best;
}

static bool penalises(const struct sampling *settings)
{
    return settings->repetition_penalty != 1.0f && settings->repetition_penalty > 0.0f;
}

/* Keskar et al. 2019: positive logits of seen tokens are divided, negative ones multiplied. Once a token. */
static void penalise(struct sampler *s, const struct sampling *settings, float *logits,
                     const uint32_t *history, uint32_t n_history)
{
    float penalty = settings->repetition_penalty;
    if (!penalises(settings))
        return;
    uint32_t window = settings->repetition_window;
    uint32_t first = window && window < n_history ? n_history - window : 0;
    for (uint32_t i = first; i < n_history; i++) {
        uint32_t token = history[i];
        if (token >= s->vocab || s->seen[token])
            continue;
        s->seen[token] = 1;
        logits[token] = logits[token] > 0 ? logits[token] / penalty : logits[token] * penalty;
    }
    for (uint32_t i = first; i < n_history; i++)
        if (history[i] < s->vocab)
            s->seen[history[i]] = 0;
}

/* The order of candidates is total, so sorting is deterministic. */
static bool before(const struct candidate *a, const struct candidate *b)
{
    return a->logit > b->logit || (a->logit == b->logit && a->token < b->token);
}

static int compare(const void *a, const void *b)
{
    return before(a, b) ? -1 : 1;
}

static void swap(struct candidate *a, struct candidate *b)
{
    struct candidate t = *a;
    *a = *b;
    *b = t;
}

/* Move the first k in order to the front (quickselect), so that a large vocabulary need not be sorted. */
static void select_first(struct candidate *c, uint32_t n, uint32_t k)
{
    uint32_t low = 0, high = n;
    while (high - low > 1) {
        struct candidate pivot = c[low + (high - low) / 2];
        uint32_t i = low, j = high - 1;
        for (;;) {
            while (before(&c[i], &pivot))
                i++;
            while (before(&pivot, &c[j]))
                j--;
            if (i >= j)
                break;
            swap(&c[i++], &c[j--]);
        }
        if (k <= j + 1 && j + 1 < high)
            high = j + 1;
        else if (k > j + 1)
            low = j + 1;
        else
            break;
    }
}

/* Sort the k first candidates to the front; returns how many there are. */
static uint32_t take_top(struct candidate *c, uint32_t n, uint32_t k)
{
    if (k == 0 || k > n)
        k = n;
    if (k < n)
        select_first(c, n, k);
    qsort(c, k, sizeof *c, compare);
    return k;
}

/* Probabilities of sorted candidates at the temperature; returns their sum. */
static float weigh(struct candidate *c, uint32_t n, float temperature)
{
    float sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += c[i].p = kernels_exp((c[i].logit - c[0].logit) / temperature);
    return sum;
}

/* How many of the sorted candidates min-p and top-p leave; *sum becomes theirs. */
static uint32_t cut(const struct candidate *c, uint32_t n, const struct sampling *settings,
                    float *sum)
{
    if (settings->min_p > 0) {
        uint32_t kept = 1;
        while (kept < n && c[kept].p >= settings->min_p * c[0].p)
            kept++;
        n = kept;
    }
    float total = 0;
    for (uint32_t i = 0; i < n; i++)
        total += c[i].p;
    if (settings->top_p > 0 && settings->top_p < 1) {
        float reached = 0;
        uint32_t kept = 0;
        while (kept < n && reached < settings->top_p * total)
            reached += c[kept++].p;
        n = kept;
        total = reached;
    }
    *sum = total;
    return n;
}

/* One of the sorted candidates. */
static uint32_t draw(struct candidate *c, uint32_t n, const struct sampling *settings, uint64_t *state)
{
    float sum = weigh(c, n, settings->temperature);
    n = cut(c, n, settings, &sum);
    float target = (float)(next_random(state) >> 40) * 0x1p-24f * sum;
    for (uint32_t i = 0; i + 1 < n; i++) {
        target -= c[i].p;
        if (target < 0)
            return c[i].token;
    }
    return c[n - 1].token;
}

uint32_t sampler_pick(struct sampler *s, const struct sampling *settings, uint64_t *state,
                      float *logits, const uint32_t *history, uint32_t n_history)
{
    penalise(s, settings, logits, history, n_history);
    if (settings->temperature <= 0) {
        logits[0] = isnan(logits[0]) ? -INFINITY : logits[0]; /* no other would be found to be larger */
        return most_probable(logits, s->vocab);
    }
    struct candidate *c = s->candidates;
    for (uint32_t i = 0; i < s->vocab; i++)
        c[i] = (struct candidate){isnan(logits[i]) ? -INFINITY : logits[i], 0, i};
    return draw(c, take_top(c, s->vocab, settings->top_k), settings, state);
}

uint32_t sampler_reads(const struct sampler *s, const struct sampling *settings)
{
    if (penalises(settings))
        return 0;
    if (settings->temperature <= 0)
        return 1;
    uint32_t k = settings->top_k && settings->top_k < s->vocab ? settings->top_k : s->vocab;
    return k <= SAMPLER_LARGEST ? k : 0;
}

uint32_t sampler_pick_largest(struct sampler *s, const struct sampling *settings, uint64_t *state,
                              const float *values, const uint32_t *tokens)
{
    struct candidate *c = s->candidates;
    uint32_t n = sampler_reads(s, settings);
    if (settings->temperature <= 0)
        return tokens[0];
    for (uint32_t i = 0; i < n; i++)
        c[i] = (struct candidate){values[i], 0, tokens[i]};
    return draw(c, n, settings, state);
}
