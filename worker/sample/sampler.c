/* The chain of samplers and the draw; see sampler.h. */
#include "sampler_internal.h"

#include "base/arrays.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct sampler *sampler_new(uint32_t vocab, uint32_t context)
{
    struct sampler *s = calloc(1, sizeof *s);
    size_t blocks = ((size_t)vocab + WEIGHT_BLOCK - 1) / WEIGHT_BLOCK;
    if (!s)
        return NULL;
    s->vocab = vocab;
    s->context = context;
    s->tables = ARRAYS_NEW(ARRAY(s->scored, vocab), ARRAY(s->logits, vocab),
                           ARRAY(s->tokens, vocab), ARRAY(s->weights, blocks * WEIGHT_BLOCK),
                           ARRAY(s->sums, blocks), ARRAY(s->listed, vocab), ARRAY(s->same, vocab),
                           ARRAY(s->adjustments, vocab), ARRAY(s->adjustment_of, vocab),
                           ARRAY(s->changed, 4 * (size_t)vocab), ARRAY(s->repeats, context));
    if (s->tables)
        return s;
    sampler_free(s);
    return NULL;
}

void sampler_free(struct sampler *s)
{
    if (!s)
        return;
    free(s->tables);
    free(s);
}

/* ---- Random bits ---- */

static uint64_t mix(uint64_t z)
{
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ z >> 27) * 0x94d049bb133111ebull;
    return z ^ z >> 31;
}

uint64_t sampler_random(uint64_t seed, uint32_t position, unsigned use)
{
    const uint64_t step = 0x9e3779b97f4a7c15ull;
    uint64_t start = mix(seed + step), at = (uint64_t)position * RANDOM_USES + use + 1;
    return mix(start + at * step);
}

/* ---- The draw ---- */

__extension__ typedef unsigned __int128 uint128;

/* The index of the candidate that is drawn. *weight, *total: as weigh_candidates. */
static uint32_t draw(struct sampler *s, uint64_t random, const struct candidates *c,
                     uint64_t *total)
{
    *total = weigh_candidates(s, c, 0);
    if (*total == 0)
        return select_largest(c->logits, c->n);
    uint64_t target = (uint64_t)((uint128)random * *total >> 64); /* below the total */
    uint32_t block = 0, i;
    while (target >= s->sums[block])
        target -= s->sums[block++];
    for (i = block * WEIGHT_BLOCK; target >= (uint32_t)s->weights[i]; i++)
        target -= (uint32_t)s->weights[i];
    return i;
}

static void learn_surprise(const struct sampler *s, const struct sampling *settings, uint32_t drawn,
                           uint64_t total, float *mu)
{
    if (total == 0)
        return;
    double surprise = log2((double)total / (double)s->weights[drawn]);
    float next = *mu - settings->mirostat_eta * (float)(surprise - (double)settings->mirostat_tau);
    *mu = fminf(fmaxf(next, -1000), 1000); /* the range of the parameter that continues it */
}

/* ---- The chain ---- */

static bool replaced_by_mirostat(const struct sampling *settings, char letter)
{
    return settings->mirostat && letter != SAMPLER_TEMPERATURE;
}

static void adjust(struct sampler *s, const struct sampling *settings,
                   const struct sampler_turn *turn, char letter, struct candidates *c)
{
    if (letter == SAMPLER_PENALTIES)
        adjust_penalties(s, settings, turn, c);
    else if (letter == SAMPLER_DRY)
        adjust_dry(s, settings, turn, c);
}

/* One choice. second: the guard has refused the first one. SAMPLER_UNDECIDED: only of a part of the
 * candidates. */
static uint32_t choose(struct sampler *s, const struct sampling *settings,
                       const struct sampler_turn *turn, bool second, struct candidates *c)
{
    bool greedy = settings->temperature <= 0;
    unsigned use = second ? RANDOM_USES / 2 : 0;
    uint64_t total, xtc = sampler_random(settings->seed, turn->n_tokens, use + RANDOM_XTC);
    adjust_biases(s, turn, c);
    for (const char *letter = settings->order; *letter; letter++) {
        adjust(s, settings, turn, *letter, c);
        if (!greedy && !replaced_by_mirostat(settings, *letter))
            cut_candidates(s, settings, *letter, xtc, c);
        if (c->undecided)
            return SAMPLER_UNDECIDED;
    }
    if (greedy)
        return candidate_token(c, select_largest(c->logits, c->n));
    if (settings->mirostat)
        cut_surprising(s, *turn->mu, c);
    uint64_t random = sampler_random(settings->seed, turn->n_tokens, use + RANDOM_DRAW);
    uint32_t drawn = draw(s, random, c, &total);
    if (settings->mirostat)
        learn_surprise(s, settings, drawn, total, turn->mu);
    return candidate_token(c, drawn);
}

static uint32_t choose_of_row(struct sampler *s, const struct sampling *settings,
                              const struct sampler_turn *turn, bool second, float *logits)
{
    struct candidates c = {.logits = logits, .n = s->vocab, .scale = 1};
    if (isnan(logits[0])) { /* no logit compares larger than NaN */
        s->changed[s->n_changed++] = (struct scored){logits[0], 0};
        logits[0] = -INFINITY;
    }
    uint32_t token = choose(s, settings, turn, second, &c);
    undo_adjustments(s, logits);
    return token;
}

static void apply_mask(const uint32_t *mask, float *logits, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (!(mask[i / 32] >> i % 32 & 1))
            logits[i] = -INFINITY;
}

uint32_t sampler_pick(struct sampler *s, const struct sampling *settings,
                      const struct sampler_turn *turn, float *logits)
{
    const struct sampler_guard *guard = turn->guard;
    float mu = turn->mu ? *turn->mu : 0;
    uint32_t token = choose_of_row(s, settings, turn, false, logits);
    if (!guard || guard->accepts(guard->arg, token))
        return token;
    if (turn->mu)
        *turn->mu = mu;
    const uint32_t *mask = guard->mask(guard->arg);
    if (!mask)
        return token;
    apply_mask(mask, logits, s->vocab);
    return choose_of_row(s, settings, turn, true, logits);
}

/* ---- From the largest logits alone ---- */

/* Whether penalties and DRY can only lower logits. */
static bool only_lowers(const struct sampling *settings)
{
    float penalty = settings->repetition_penalty;
    return (penalty >= 1 || penalty <= 0) && settings->presence_penalty >= 0 &&
           settings->frequency_penalty >= 0;
}

/* How many tokens the sampler may lower: as many may be among the largest and no more after it. */
static uint32_t lowers(const struct sampling *settings, char letter,
                       const struct sampler_turn *turn)
{
    if (letter == SAMPLER_PENALTIES && has_penalties(settings))
        return window_tokens(settings->repetition_window, turn->n_tokens);
    if (letter == SAMPLER_DRY && settings->dry_multiplier > 0)
        return window_tokens(settings->dry_window, turn->n_tokens);
    return 0;
}

static bool has_letter(const struct sampling *settings, char letter)
{
    return strchr(settings->order, letter) != NULL;
}

static bool is_on(float share)
{
    return share > 0 && share < 1;
}

/* Whether the sampler needs the sum of all probabilities, or all logits. */
static bool needs_all(const struct sampling *settings, char letter)
{
    return (letter == SAMPLER_TOP_N_SIGMA && settings->top_n_sigma > 0) ||
           (letter == SAMPLER_TYPICAL && is_on(settings->typical_p)) ||
           (letter == SAMPLER_TOP_P && is_on(settings->top_p)) ||
           (letter == SAMPLER_XTC && settings->xtc_probability > 0) ||
           (letter == SAMPLER_TEMPERATURE && settings->dynamic_temperature > 0);
}

static uint32_t up_to_largest(const struct sampler *s, uint64_t n)
{
    if (n > s->vocab)
        n = s->vocab;
    return n <= SAMPLER_LARGEST ? (uint32_t)n : 0;
}

uint32_t sampler_reads(const struct sampler *s, const struct sampling *settings,
                       const struct sampler_turn *turn)
{
    uint64_t lowered = (uint64_t)turn->n_biases + turn->n_banned;
    for (uint32_t i = 0; i < turn->n_biases; i++)
        if (!(turn->biases[i].bias <= 0))
            return 0;
    if (settings->mirostat && settings->temperature > 0)
        return 0;
    if (has_letter(settings, SAMPLER_PENALTIES) && !only_lowers(settings))
        return 0;
    for (const char *letter = settings->order; *letter; letter++) {
        lowered += lowers(settings, *letter, turn);
        if (settings->temperature <= 0)
            continue;
        if (needs_all(settings, *letter))
            return up_to_largest(s, s->vocab);
        if (*letter == SAMPLER_TOP_K && settings->top_k > 0 && settings->top_k < s->vocab)
            return up_to_largest(s, settings->top_k + lowered);
        if (*letter == SAMPLER_MIN_P && settings->min_p > 0)
            return up_to_largest(s, s->vocab < SAMPLER_LARGEST ? s->vocab : SAMPLER_LARGEST);
    }
    return up_to_largest(s, settings->temperature <= 0 ? 1 + lowered : s->vocab);
}

uint32_t sampler_pick_largest(struct sampler *s, const struct sampling *settings,
                              const struct sampler_turn *turn, const float *values,
                              const uint32_t *tokens, uint32_t n)
{
    const struct sampler_guard *guard = turn->guard;
    for (uint32_t i = 0; i < n; i++)
        s->scored[i] = (struct scored){isnan(values[i]) ? -INFINITY : values[i], tokens[i]};
    struct candidates c = {.logits = s->logits,
                           .tokens = s->tokens,
                           .n = n,
                           .scale = 1,
                           .partial = n < s->vocab,
                           .floor = s->scored[n - 1].score};
    sort_by_index(s->scored, n);
    for (uint32_t i = 0; i < n; i++) {
        s->logits[i] = s->scored[i].score;
        s->tokens[i] = s->scored[i].index;
    }
    uint32_t token = choose(s, settings, turn, false, &c);
    if (token != SAMPLER_UNDECIDED && guard && !guard->accepts(guard->arg, token))
        return SAMPLER_UNDECIDED;
    return token;
}
