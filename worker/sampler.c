/* Sampling; see sampler.h. */
#include "sampler.h"

#include "kernels/kernels.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct candidate {
    float logit;
    uint32_t token;
};

/* Weights are summed, and searched, by blocks of as many. */
enum { BLOCK = 1024 };

struct sampler {
    uint32_t vocab;
    uint8_t *seen;                /* [vocab]: already penalised; zero between calls */
    struct candidate *candidates; /* [vocab] */
    float *logits;                /* [vocab]: the candidates' */
    int32_t *weights;             /* [vocab, to whole blocks] */
    uint64_t *sums;               /* [blocks]: of the weights */
    uint32_t *listed, *same;      /* [vocab]: where some weights are */
};

struct sampler *sampler_new(uint32_t vocab)
{
    struct sampler *s = calloc(1, sizeof *s);
    size_t blocks = ((size_t)vocab + BLOCK - 1) / BLOCK;
    if (!s)
        return NULL;
    s->vocab = vocab;
    s->seen = calloc(vocab, 1);
    s->candidates = calloc(vocab, sizeof *s->candidates);
    s->logits = calloc(vocab, sizeof *s->logits);
    s->weights = calloc(blocks * BLOCK, sizeof *s->weights);
    s->sums = calloc(blocks, sizeof *s->sums);
    s->listed = calloc(vocab, sizeof *s->listed);
    s->same = calloc(vocab, sizeof *s->same);
    if (!s->seen || !s->candidates || !s->logits || !s->weights || !s->sums || !s->listed || !s->same) {
        sampler_free(s);
        return NULL;
    }
    return s;
}

void sampler_free(struct sampler *s)
{
    if (!s)
        return;
    free(s->seen);
    free(s->candidates);
    free(s->logits);
    free(s->weights);
    free(s->sums);
    free(s->listed);
    free(s->same);
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

/* ---- The top_k largest ---- */

/* The order of candidates is total. */
static bool before(const struct candidate *a, const struct candidate *b)
{
    return a->logit > b->logit || (a->logit == b->logit && a->token < b->token);
}

static void swap(struct candidate *a, struct candidate *b)
{
    struct candidate t = *a;
    *a = *b;
    *b = t;
}

/* Move the first k in order to the front (quickselect). */
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

static float smallest(const struct candidate *c, uint32_t n)
{
    float least = c[0].logit;
    for (uint32_t i = 1; i < n; i++)
        least = c[i].logit < least ? c[i].logit : least;
    return least;
}

/* The k < n largest logits, to the front of c. A logit that is not above the smallest of k that stand before it is none of
 * them; so few are looked at more closely. */
static void find_largest(const float *logits, uint32_t n, uint32_t k, struct candidate *c)
{
    uint32_t room = n - k > k + LOOK_AT_ONCE ? 2 * k + LOOK_AT_ONCE : n, count = 0;
    float least = -INFINITY;
    for (uint32_t i = 0; i < n;) {
        if (count >= k && n - i >= LOOK_AT_ONCE && !any_above(logits + i, least)) {
            i += LOOK_AT_ONCE;
            continue;
        }
        uint32_t end = n - i >= LOOK_AT_ONCE ? i + LOOK_AT_ONCE : n;
        for (; i < end; i++) {
            if (count >= k && !(logits[i] > least))
                continue;
            c[count++] = (struct candidate){isnan(logits[i]) ? -INFINITY : logits[i], i};
            if (count < room)
                continue;
            select_first(c, count, k);
            count = k;
            least = smallest(c, k);
        }
    }
    select_first(c, count, k);
}

/* ---- Weights, and a draw by them ---- */

/* Of n logits, of which the first is a number; what min-p leaves. Returns their sum. */
static uint64_t weigh(struct sampler *s, const struct sampling *settings, const float *logits, uint32_t n)
{
    const struct kernels *kernels = kernels_get();
    float top = logits[most_probable(logits, n)], scale = 1 / settings->temperature;
    int32_t least = settings->min_p > 0 ? (int32_t)ceil(fmin(settings->min_p, 1) * WEIGH_ONE) : 0;
    uint64_t total = 0;
    for (uint32_t first = 0; first < n; first += BLOCK) {
        uint32_t count = n - first < BLOCK ? n - first : BLOCK;
        int32_t *w = s->weights + first;
        total += s->sums[first / BLOCK] = kernels->weigh(logits + first, top, scale, least, count, w);
        memset(w + count, 0, (BLOCK - count) * sizeof *w);
    }
    return total;
}

static uint32_t draw_of_all(const struct sampler *s, uint64_t target)
{
    uint32_t block = 0, i;
    while (target >= s->sums[block])
        target -= s->sums[block++];
    for (i = block * BLOCK; target >= (uint32_t)s->weights[i]; i++)
        target -= (uint32_t)s->weights[i];
    return i;
}

/* Bits that are in the weights' order, and spread the small ones as well as the large. Exact: a weight has no more than the
 * 24 bits of the float that it was made of. */
static uint32_t order_bits(int32_t weight)
{
    float f = (float)weight;
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

static bool any_at_least(const int32_t *w, int32_t least)
{
    int there = 0;
    for (int i = 0; i < LOOK_AT_ONCE; i++)
        there |= w[i] >= least;
    return there;
}

/* Where weights of at least `least` stand, in order. Returns how many there are. */
static uint32_t list_at_least(struct sampler *s, uint32_t n, int32_t least)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < n; i += LOOK_AT_ONCE) { /* blocks are whole: zeros follow the last */
        if (!any_at_least(s->weights + i, least))
            continue;
        for (uint32_t k = i; k < i + LOOK_AT_ONCE && k < n; k++) {
            s->listed[count] = k;
            count += s->weights[k] >= least;
        }
    }
    return count;
}

/* The fewest of the largest weights, of equal ones the first: those above `least`, and those that are `least` up to the one
 * at `last`. */
struct nucleus {
    int32_t least;
    uint32_t last;
    uint64_t sum;
};

/* That sums to at least `need` of total, among the n_listed that are listed. Found by three digits of the bits that order
 * them, each time among those that have the digits before. */
static struct nucleus find_nucleus(struct sampler *s, uint32_t n_listed, uint64_t need)
{
    enum { DIGIT_BITS = 10, DIGITS = 1 << 11 }; /* the first digit has a bit more */
    const uint32_t *from = s->listed;
    uint64_t above = 0;
    for (int shift = 2 * DIGIT_BITS; shift >= 0; shift -= DIGIT_BITS) {
        uint64_t sums[DIGITS] = {0};
        uint32_t mask = shift == 2 * DIGIT_BITS ? DIGITS - 1 : (1 << DIGIT_BITS) - 1, digit = mask, left = 0;
        for (uint32_t i = 0; i < n_listed; i++) {
            int32_t w = s->weights[from[i]];
            sums[order_bits(w) >> shift & mask] += (uint32_t)w;
        }
        while (above + sums[digit] < need)
            above += sums[digit--];
        for (uint32_t i = 0; i < n_listed; i++) {
            uint32_t at = from[i];
            s->same[left] = at;
            left += (order_bits(s->weights[at]) >> shift & mask) == digit;
        }
        from = s->same;
        n_listed = left;
    }
    uint32_t least = (uint32_t)s->weights[from[0]], equal = (uint32_t)((need - above - 1) / least);
    return (struct nucleus){(int32_t)least, from[equal], above + (equal + 1) * (uint64_t)least};
}

__extension__ typedef unsigned __int128 uint128;

/* Whole, and below the sum. */
static uint64_t part_of(uint64_t sum, uint64_t random)
{
    return (uint64_t)((uint128)random * sum >> 64);
}

static uint32_t draw_of_nucleus(struct sampler *s, uint32_t n, uint64_t total, float top_p, uint64_t random)
{
    uint64_t need = (uint64_t)ceil((double)top_p * (double)total);
    uint64_t of_no_use = (total - need) / n; /* all that weigh less than this sum to no more than what is not needed */
    struct nucleus kept = find_nucleus(s, list_at_least(s, n, of_no_use ? (int32_t)of_no_use : 1), need);
    uint64_t target = part_of(kept.sum, random);
    for (const uint32_t *at = s->listed;; at++) {
        int32_t w = s->weights[*at];
        uint32_t counts = w > kept.least || (w == kept.least && *at <= kept.last) ? (uint32_t)w : 0;
        if (target < counts)
            return *at;
        target -= counts;
    }
}

/* One of n logits by their weights: its index. The first of them is a number. */
static uint32_t draw(struct sampler *s, const struct sampling *settings, uint64_t *state, const float *logits, uint32_t n)
{
    uint64_t total = weigh(s, settings, logits, n), random = next_random(state);
    if (total == 0)
        return most_probable(logits, n);
    if (settings->top_p > 0 && settings->top_p < 1)
        return draw_of_nucleus(s, n, total, settings->top_p, random);
    return draw_of_all(s, part_of(total, random));
}

static int compare_tokens(const void *a, const void *b)
{
    uint32_t x = ((const struct candidate *)a)->token, y = ((const struct candidate *)b)->token;
    return (x > y) - (x < y);
}

static uint32_t draw_candidate(struct sampler *s, const struct sampling *settings, uint64_t *state, uint32_t n)
{
    struct candidate *c = s->candidates;
    qsort(c, n, sizeof *c, compare_tokens);
    for (uint32_t i = 0; i < n; i++)
        s->logits[i] = c[i].logit;
    return c[draw(s, settings, state, s->logits, n)].token;
}

uint32_t sampler_pick(struct sampler *s, const struct sampling *settings, uint64_t *state,
                      float *logits, const uint32_t *history, uint32_t n_history)
{
    penalise(s, settings, logits, history, n_history);
    logits[0] = isnan(logits[0]) ? -INFINITY : logits[0]; /* no other would be found to be larger */
    if (settings->temperature <= 0)
        return most_probable(logits, s->vocab);
    if (settings->top_k == 0 || settings->top_k >= s->vocab)
        return draw(s, settings, state, logits, s->vocab);
    find_largest(logits, s->vocab, settings->top_k, s->candidates);
    return draw_candidate(s, settings, state, settings->top_k);
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
    uint32_t n = sampler_reads(s, settings);
    if (settings->temperature <= 0)
        return tokens[0];
    for (uint32_t i = 0; i < n; i++)
        s->candidates[i] = (struct candidate){values[i], tokens[i]};
    return draw_candidate(s, settings, state, n);
}
