/* Samplers that change the logits of some tokens: biases, penalties, DRY; see sampler.h. The cost
 * of each grows with its window, not with the vocabulary. */
#include "sampler_internal.h"

#include <math.h>

uint32_t window_tokens(uint32_t window, uint32_t n_tokens)
{
    return window && window < n_tokens ? window : n_tokens;
}

bool has_penalties(const struct sampling *settings)
{
    return (settings->repetition_penalty != 1 && settings->repetition_penalty > 0) ||
           settings->presence_penalty != 0 || settings->frequency_penalty != 0;
}

/* The token's adjustment, new and zero at first; NULL: the token is not in the vocabulary. */
static struct adjustment *adjustment_of(struct sampler *s, uint32_t token)
{
    if (token >= s->vocab)
        return NULL;
    if (!s->adjustment_of[token]) {
        s->adjustments[s->n_adjustments++] = (struct adjustment){.token = token};
        s->adjustment_of[token] = s->n_adjustments;
    }
    return &s->adjustments[s->adjustment_of[token] - 1];
}

static void set_logit(struct sampler *s, struct candidates *c, uint32_t index, float value)
{
    if (!c->tokens)
        s->changed[s->n_changed++] = (struct scored){c->logits[index], index};
    c->logits[index] = value;
}

typedef float adjust_logit(const struct sampling *settings, const struct adjustment *a,
                           float logit);

/* Applies the adjustments to those of their tokens that are candidates, and forgets them. */
static void apply(struct sampler *s, const struct sampling *settings, adjust_logit *adjusted,
                  struct candidates *c)
{
    for (uint32_t i = 0; c->tokens && i < c->n; i++) {
        uint32_t of = s->adjustment_of[c->tokens[i]];
        if (of)
            set_logit(s, c, i, adjusted(settings, &s->adjustments[of - 1], c->logits[i]));
    }
    for (uint32_t i = 0; i < s->n_adjustments; i++) {
        const struct adjustment *a = &s->adjustments[i];
        if (!c->tokens)
            set_logit(s, c, a->token, adjusted(settings, a, c->logits[a->token]));
        s->adjustment_of[a->token] = 0;
    }
    s->n_adjustments = 0;
}

void undo_adjustments(struct sampler *s, float *row)
{
    while (s->n_changed) {
        const struct scored *was = &s->changed[--s->n_changed];
        row[was->index] = was->score;
    }
}

/* ---- Biases ---- */

static float biased(const struct sampling *settings, const struct adjustment *a, float logit)
{
    (void)settings;
    return logit + a->bias;
}

void adjust_biases(struct sampler *s, const struct sampler_turn *turn, struct candidates *c)
{
    struct adjustment *a;
    for (uint32_t i = 0; i < turn->n_biases; i++)
        if ((a = adjustment_of(s, turn->biases[i].token)))
            a->bias = turn->biases[i].bias;
    for (uint32_t i = 0; i < turn->n_banned; i++)
        if ((a = adjustment_of(s, turn->banned[i])))
            a->bias = -INFINITY;
    apply(s, NULL, biased, c);
}

/* ---- Penalties ---- */

static float penalised(const struct sampling *settings, const struct adjustment *a, float logit)
{
    float penalty = settings->repetition_penalty > 0 ? settings->repetition_penalty : 1;
    logit = logit > 0 ? logit / penalty : logit * penalty;
    return logit - ((float)a->count * settings->frequency_penalty + settings->presence_penalty);
}

void adjust_penalties(struct sampler *s, const struct sampling *settings,
                      const struct sampler_turn *turn, struct candidates *c)
{
    if (!has_penalties(settings))
        return;
    uint32_t n = window_tokens(settings->repetition_window, turn->n_tokens);
    for (uint32_t i = turn->n_tokens - n; i < turn->n_tokens; i++) {
        struct adjustment *a = adjustment_of(s, turn->tokens[i]);
        if (a)
            a->count++;
    }
    apply(s, settings, penalised, c);
}

/* ---- DRY ---- */

/* The Z function of the last n tokens, read from the last one back: s->repeats[k] = how many tokens
 * before and at the one that stands k back are equal to as many at the end. Gusfield 1997, 1.4;
 * linear. */
static void find_repeats(struct sampler *s, const uint32_t *last, uint32_t n)
{
    uint32_t *z = s->repeats, begin = 0,
             end = 0; /* [begin, end): the match that reaches furthest */
    for (uint32_t k = 1; k < n; k++) {
        uint32_t length = 0;
        if (k < end)
            length = z[k - begin] < end - k ? z[k - begin] : end - k;
        while (k + length < n && last[-(int64_t)length] == last[-(int64_t)(k + length)])
            length++;
        z[k] = length;
        if (k + length > end) {
            begin = k;
            end = k + length;
        }
    }
}

static float deterred(const struct sampling *settings, const struct adjustment *a, float logit)
{
    if (a->breaks)
        return logit;
    double power = (double)a->repeat - (double)settings->dry_allowed_length;
    double penalty = (double)settings->dry_multiplier * pow((double)settings->dry_base, power);
    return (float)((double)logit - fmin(penalty, 0x1p100)); /* a sum of them stays finite */
}

void adjust_dry(struct sampler *s, const struct sampling *settings, const struct sampler_turn *turn,
                struct candidates *c)
{
    uint32_t n = window_tokens(settings->dry_window, turn->n_tokens),
             most = turn->n_unbroken < n ? turn->n_unbroken : n;
    if (settings->dry_multiplier <= 0 || n < 2 || n > s->context ||
        most < settings->dry_allowed_length)
        return;
    const uint32_t *last = turn->tokens + turn->n_tokens - 1;
    find_repeats(s, last, n);
    for (uint32_t k = 1; k < n; k++) {
        uint32_t repeat = s->repeats[k] < most ? s->repeats[k] : most;
        if (repeat < settings->dry_allowed_length)
            continue;
        struct adjustment *a = adjustment_of(s, last[-(int64_t)(k - 1)]); /* it came next */
        if (a && a->repeat < repeat)
            a->repeat = repeat;
    }
    for (uint32_t i = 0; i < s->n_adjustments && turn->breaks; i++)
        s->adjustments[i].breaks = turn->breaks(turn->breaks_arg, s->adjustments[i].token);
    apply(s, settings, deterred, c);
}
