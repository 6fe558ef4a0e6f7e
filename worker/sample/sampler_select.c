/* Searches in rows of logits and weights; see sampler_internal.h. */
#include "sampler_internal.h"

#include "kernels/kernels.h"

#include <math.h>
#include <string.h>

/* Whether any of LOOK_AT_ONCE logits is above `most`. The compiler makes vector comparisons of this
 * loop, so searches skip blocks that hold nothing of interest. */
enum { LOOK_AT_ONCE = 64 };

static bool any_above(const float *logits, float most)
{
    int above = 0;
    for (int i = 0; i < LOOK_AT_ONCE; i++)
        above |= logits[i] > most;
    return above;
}

uint32_t select_largest(const float *logits, uint32_t n)
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

uint32_t list_above(struct sampler *s, const float *logits, uint32_t n, float bound)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < n;) {
        if (n - i >= LOOK_AT_ONCE && !any_above(logits + i, bound)) {
            i += LOOK_AT_ONCE;
            continue;
        }
        uint32_t end = n - i >= LOOK_AT_ONCE ? i + LOOK_AT_ONCE : n;
        for (; i < end; i++) {
            s->listed[count] = i;
            count += logits[i] > bound;
        }
    }
    return count;
}

/* ---- The largest logits ---- */

/* A total order. */
static bool before(const struct scored *a, const struct scored *b)
{
    return a->score > b->score || (a->score == b->score && a->index < b->index);
}

static void swap(struct scored *a, struct scored *b)
{
    struct scored t = *a;
    *a = *b;
    *b = t;
}

/* Puts some of c[low ... high), at least two, before all others of them. Returns where the others
 * begin; neither part is empty. Hoare's partition by the middle element. */
static uint32_t split(struct scored *c, uint32_t low, uint32_t high)
{
    struct scored pivot = c[low + (high - low) / 2];
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
    return j + 1 < high ? j + 1 : high - 1; /* of two in order the pivot is the last */
}

/* Moves the first k in that order to the front (quickselect). */
static void select_first(struct scored *c, uint32_t n, uint32_t k)
{
    uint32_t low = 0, high = n;
    while (high - low > 1) {
        uint32_t end = split(c, low, high);
        if (k == end)
            return;
        if (k < end)
            high = end;
        else
            low = end;
    }
}

static float smallest(const struct scored *c, uint32_t n)
{
    float least = c[0].score;
    for (uint32_t i = 1; i < n; i++)
        least = c[i].score < least ? c[i].score : least;
    return least;
}

/* Shell's sort, with gaps by Tokuda. */
void sort_by_index(struct scored *list, uint32_t n)
{
    static const uint32_t gaps[] = {26218, 11653, 5179, 2302, 1023, 455, 202, 90, 40, 18, 8, 4, 1};
    for (size_t g = 0; g < sizeof gaps / sizeof gaps[0]; g++)
        for (uint32_t gap = gaps[g], i = gap; i < n; i++) {
            struct scored moved = list[i];
            uint32_t at = i;
            for (; at >= gap && list[at - gap].index > moved.index; at -= gap)
                list[at] = list[at - gap];
            list[at] = moved;
        }
}

/* A logit is collected only if it is above the smallest of k logits before it, so most logits are
 * skipped. */
void select_top(struct sampler *s, const float *logits, uint32_t n, uint32_t k)
{
    struct scored *c = s->scored;
    uint32_t capacity = n - k > k + LOOK_AT_ONCE ? 2 * k + LOOK_AT_ONCE : n, count = 0;
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
            c[count++] = (struct scored){isnan(logits[i]) ? -INFINITY : logits[i], i};
            if (count < capacity)
                continue;
            select_first(c, count, k);
            count = k;
            least = smallest(c, k);
        }
    }
    select_first(c, count, k);
    sort_by_index(c, k);
}

void sampler_top(struct sampler *s, const float *logits, uint32_t k, float *values,
                 uint32_t *tokens)
{
    select_top(s, logits, s->vocab, k);
    for (uint32_t i = 0; i < k; i++) { /* in the order of their tokens: by insertion */
        uint32_t at = i;
        for (; at > 0 && values[at - 1] < s->scored[i].score; at--) {
            values[at] = values[at - 1];
            tokens[at] = tokens[at - 1];
        }
        values[at] = s->scored[i].score;
        tokens[at] = s->scored[i].index;
    }
}

/* ---- Weights ---- */

uint64_t weigh_candidates(struct sampler *s, const struct candidates *c, int32_t least)
{
    const struct kernels *kernels = kernels_get();
    float top = c->logits[select_largest(c->logits, c->n)];
    uint64_t total = 0;
    for (uint32_t first = 0; first < c->n; first += WEIGHT_BLOCK) {
        uint32_t count = c->n - first < WEIGHT_BLOCK ? c->n - first : WEIGHT_BLOCK;
        int32_t *w = s->weights + first;
        total += s->sums[first / WEIGHT_BLOCK] =
            kernels->weigh(c->logits + first, top, c->scale, least, count, w);
        memset(w + count, 0, (WEIGHT_BLOCK - count) * sizeof *w);
    }
    return total;
}

/* Bits that have the order of the weights, and spread small weights as well as large ones. The
 * conversion is exact: a weight was made from a float, so it has at most 24 significant bits. */
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

uint32_t list_heavy(struct sampler *s, uint32_t n, int32_t least)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < n; i += LOOK_AT_ONCE) { /* zeros fill the last block */
        if (!any_at_least(s->weights + i, least))
            continue;
        for (uint32_t k = i; k < i + LOOK_AT_ONCE && k < n; k++) {
            s->listed[count] = k;
            count += s->weights[k] >= least;
        }
    }
    return count;
}

/* What top_p leaves: the weights above `least`, and those equal to `least` with an index up to
 * `last`.
 */
struct nucleus {
    int32_t least;
    uint32_t last;
    uint64_t sum;
};

/* Finds the nucleus, with a sum of at least `need`, among the n_listed weights that are listed. A
 * radix select: it determines the smallest weight of the nucleus by three digits of order_bits,
 * each among the weights that have the digits before. */
static struct nucleus find_nucleus(struct sampler *s, uint32_t n_listed, uint64_t need)
{
    enum { DIGIT_BITS = 10, DIGITS = 1 << 11 }; /* the first digit has one bit more */
    const uint32_t *from = s->listed;
    uint64_t above = 0;
    for (int shift = 2 * DIGIT_BITS; shift >= 0; shift -= DIGIT_BITS) {
        uint64_t sums[DIGITS] = {0};
        uint32_t mask = shift == 2 * DIGIT_BITS ? DIGITS - 1 : (1 << DIGIT_BITS) - 1, digit = mask,
                 left = 0;
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

uint32_t list_nucleus(struct sampler *s, uint32_t n, uint64_t need)
{
    struct nucleus kept = find_nucleus(s, n, need);
    uint32_t left = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t at = s->listed[i];
        int32_t w = s->weights[at];
        s->listed[left] = at;
        left += w > kept.least || (w == kept.least && at <= kept.last);
    }
    return left;
}

static uint32_t score_bits(float score)
{
    uint32_t bits;
    memcpy(&bits, &score, sizeof bits);
    return bits; /* in the order of the scores, which are not negative */
}

/* A radix select as find_nucleus, from the smallest score on. */
uint32_t select_nearest(struct sampler *s, uint32_t n, uint64_t need)
{
    enum { DIGIT_BITS = 10, DIGITS = 1 << 11 };
    uint64_t below = 0;
    uint32_t n_same = n, left = 0, at = 0;
    for (uint32_t i = 0; i < n; i++)
        s->same[i] = i;
    for (int shift = 2 * DIGIT_BITS; shift >= 0; shift -= DIGIT_BITS) {
        uint64_t sums[DIGITS] = {0};
        uint32_t mask = shift == 2 * DIGIT_BITS ? DIGITS - 1 : (1 << DIGIT_BITS) - 1, digit = 0;
        for (uint32_t i = 0; i < n_same; i++) {
            const struct scored *c = &s->scored[s->same[i]];
            sums[score_bits(c->score) >> shift & mask] += (uint32_t)s->weights[c->index];
        }
        while (below + sums[digit] < need)
            below += sums[digit++];
        uint32_t kept = 0;
        for (uint32_t i = 0; i < n_same; i++) {
            uint32_t k = s->same[i];
            s->same[kept] = k;
            kept += (score_bits(s->scored[k].score) >> shift & mask) == digit;
        }
        n_same = kept;
    }
    float most = s->scored[s->same[0]].score;
    while ((below += (uint32_t)s->weights[s->scored[s->same[at]].index]) < need)
        at++;
    for (uint32_t i = 0; i < n; i++) {
        struct scored c = s->scored[i];
        s->scored[left] = c;
        left += c.score < most || (c.score == most && i <= s->same[at]);
    }
    return left;
}
