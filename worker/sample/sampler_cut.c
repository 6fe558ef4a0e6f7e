/* Samplers that drop candidates, and temperature; see sampler.h. */
#include "sampler_internal.h"

#include "kernels/kernels.h"

#include <math.h>
#include <string.h>

void keep_listed(struct sampler *s, struct candidates *c, uint32_t n)
{
    if (n == 0)
        return;
    for (uint32_t i = 0; i < n; i++) { /* an index is never below its place: nothing is lost */
        uint32_t from = s->listed[i];
        s->tokens[i] = candidate_token(c, from);
        s->logits[i] = c->logits[from];
    }
    c->logits = s->logits;
    c->tokens = s->tokens;
    c->n = n;
}

/* Leaves the candidates of s->scored[0 ... n), which is in the order of the indices. */
static void keep_scored(struct sampler *s, struct candidates *c, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        s->listed[i] = s->scored[i].index;
    keep_listed(s, c, n);
}

static void cut_top_k(struct sampler *s, uint32_t k, struct candidates *c)
{
    if (k > 0 && k < c->n) {
        select_top(s, c->logits, c->n, k);
        keep_scored(s, c, k);
    }
    c->partial &= k == 0;
}

static void cut_top_n_sigma(struct sampler *s, float n_sigma, struct candidates *c)
{
    double sum = 0, squares = 0;
    uint32_t n = 0;
    if (!(n_sigma > 0))
        return;
    float top = c->logits[select_largest(c->logits, c->n)];
    if (!isfinite(top))
        return;
    for (uint32_t i = 0; i < c->n; i++)
        if (c->logits[i] > -INFINITY) {
            sum += (double)c->logits[i];
            n++;
        }
    double mean = sum / n;
    for (uint32_t i = 0; i < c->n; i++)
        if (c->logits[i] > -INFINITY) {
            double d = (double)c->logits[i] - mean;
            squares += d * d;
        }
    float bound = (float)((double)top - (double)n_sigma * sqrt(squares / n));
    keep_listed(s, c, list_above(s, c->logits, c->n, nextafterf(bound, -INFINITY)));
}

/* The mean of (logit - the largest) * scale, by probability; 0 where total is 0. */
static double mean_depth(const struct sampler *s, const struct candidates *c, float top,
                         uint64_t total)
{
    double sum = 0;
    for (uint32_t i = 0; i < c->n; i++)
        if (s->weights[i])
            sum += (double)s->weights[i] * (double)((c->logits[i] - top) * c->scale);
    return total ? sum / (double)total : 0;
}

/* -ln p - entropy = mean depth - depth, since ln p = depth - ln(sum). */
static void cut_typical(struct sampler *s, float typical_p, struct candidates *c)
{
    if (!(typical_p > 0 && typical_p < 1))
        return;
    uint64_t total = weigh_candidates(s, c, 0);
    if (total == 0)
        return;
    float top = c->logits[select_largest(c->logits, c->n)];
    double mean = mean_depth(s, c, top, total);
    uint32_t n = list_heavy(s, c->n, 1);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t at = s->listed[i];
        double depth = (double)((c->logits[at] - top) * c->scale);
        s->scored[i] = (struct scored){(float)fabs(mean - depth), at};
    }
    keep_scored(s, c, select_nearest(s, n, (uint64_t)floor((double)typical_p * (double)total) + 1));
}

static void cut_top_p(struct sampler *s, float top_p, struct candidates *c)
{
    if (!(top_p > 0 && top_p < 1))
        return;
    uint64_t total = weigh_candidates(s, c, 0);
    if (total == 0)
        return;
    uint64_t need = (uint64_t)ceil((double)top_p * (double)total);
    /* All weights below this sum to at most total - need, so the nucleus has none of them. */
    uint64_t least = (total - need) / c->n;
    uint32_t n = list_heavy(s, c->n, least ? (int32_t)least : 1);
    keep_listed(s, c, list_nucleus(s, n, need));
}

/* Weighs only candidates that may have the weight: those that the bound drops have a lower logit
 * than it by more than the errors of the logarithm and of the kernel's exp. */
static void cut_min_p(struct sampler *s, float min_p, struct candidates *c)
{
    if (!(min_p > 0))
        return;
    float top = c->logits[select_largest(c->logits, c->n)];
    if (!isfinite(top))
        return;
    float depth = logf(fminf(min_p, 1)) - 1e-3f;
    float bound = top + depth / c->scale - 1e-6f * fabsf(top);
    if (c->partial && !(bound > c->floor)) {
        c->undecided = true;
        return;
    }
    c->partial = false;
    keep_listed(s, c, list_above(s, c->logits, c->n, bound));
    int32_t least = (int32_t)ceil(fmin((double)min_p, 1) * WEIGH_ONE);
    weigh_candidates(s, c, least);
    keep_listed(s, c, list_heavy(s, c->n, least));
}

static void cut_xtc(struct sampler *s, const struct sampling *settings, uint64_t random,
                    struct candidates *c)
{
    double chance = (double)(random >> 11) * 0x1p-53;
    if (!(chance < (double)settings->xtc_probability) || c->n < 2)
        return;
    uint64_t total = weigh_candidates(s, c, 0);
    double need = ceil((double)settings->xtc_threshold * (double)total);
    if (total == 0 || need > WEIGH_ONE)
        return;
    uint32_t n = list_heavy(s, c->n, need < 1 ? 1 : (int32_t)need);
    if (n < 2)
        return;
    uint32_t stays = s->listed[0]; /* of equal ones the last */
    for (uint32_t i = 1; i < n; i++)
        stays = s->weights[s->listed[i]] <= s->weights[stays] ? s->listed[i] : stays;
    for (uint32_t i = 0; i < n; i++)
        s->weights[s->listed[i]] = s->listed[i] == stays ? s->weights[stays] : -1;
    uint32_t left = 0;
    for (uint32_t i = 0; i < c->n; i++) {
        s->listed[left] = i;
        left += s->weights[i] >= 0;
    }
    keep_listed(s, c, left);
}

/* Entropy as a part of the most that c->n candidates can have. */
static double relative_entropy(struct sampler *s, const struct candidates *c)
{
    uint64_t total = weigh_candidates(s, c, 0);
    if (total == 0 || c->n < 2)
        return 0;
    float top = c->logits[select_largest(c->logits, c->n)];
    double entropy = log((double)total / WEIGH_ONE) - mean_depth(s, c, top, total);
    return fmin(fmax(entropy / log(c->n), 0), 1);
}

static void cut_all_but_largest(struct sampler *s, struct candidates *c)
{
    s->listed[0] = select_largest(c->logits, c->n);
    keep_listed(s, c, 1);
}

static void set_temperature(struct sampler *s, const struct sampling *settings,
                            struct candidates *c)
{
    double t = (double)settings->temperature, range = (double)settings->dynamic_temperature;
    if (range > 0 && c->n > 1) {
        double low = fmax(0, t - range), high = t + range;
        t = low + (high - low) * pow(relative_entropy(s, c), (double)settings->dynamic_exponent);
    }
    if (t < 1e-6)
        cut_all_but_largest(s, c);
    else
        c->scale = (float)((double)c->scale / t);
}

void cut_candidates(struct sampler *s, const struct sampling *settings, char letter,
                    uint64_t random, struct candidates *c)
{
    switch (letter) {
    case SAMPLER_TOP_N_SIGMA:
        cut_top_n_sigma(s, settings->top_n_sigma, c);
        break;
    case SAMPLER_TOP_K:
        cut_top_k(s, settings->top_k, c);
        break;
    case SAMPLER_TYPICAL:
        cut_typical(s, settings->typical_p, c);
        break;
    case SAMPLER_TOP_P:
        cut_top_p(s, settings->top_p, c);
        break;
    case SAMPLER_MIN_P:
        cut_min_p(s, settings->min_p, c);
        break;
    case SAMPLER_XTC:
        cut_xtc(s, settings, random, c);
        break;
    case SAMPLER_TEMPERATURE:
        set_temperature(s, settings, c);
        break;
    default:
        break;
    }
}

void cut_surprising(struct sampler *s, float mu, struct candidates *c)
{
    uint64_t total = weigh_candidates(s, c, 0);
    double need = ceil((double)total * exp2(-(double)mu));
    if (total == 0)
        return;
    uint32_t n = need <= WEIGH_ONE ? list_heavy(s, c->n, need < 1 ? 1 : (int32_t)need) : 0;
    if (n)
        keep_listed(s, c, n);
    else
        cut_all_but_largest(s, c);
}
