/* The trial of copies; see copy_trial.h. */
#include "copy_trial.h"

#include "base/sort_doubles.h"

#include <math.h>
#include <string.h>

enum { COUNTED = COPY_TRIAL_BLOCK - COPY_TRIAL_SETTLE };
/* Copied experts stay, so steps with fewer copies profit from the steps before them. To win, they
 * must be faster by this share. */
#define MARGIN      0.02
#define MOST_MARGIN 0.32
#define FAR_LONGER  3
/* Steps whose mean cost of misses is compared. */
#define MISSES_STEPS 64
/* A kind gets no more blocks if each of its blocks, this many or more, took SLOWER times as long as
 * COPY_LOADS. Steps without copies are left out of the next trials if it was SKIP_SLOWER times. */
#define DROP_BLOCKS 2
#define SLOWER      1.3
#define SKIP_SLOWER 2
/* A block ends early if even its shortest step takes so many times as long: half of it, or its
 * first steps. Or if so many steps in a row take so long that they seem idle. */
#define LONG      1.5
#define VERY_LONG 4
#define SEEM_IDLE 4

/* ---- The order of blocks ---- */

/* COPY_LOADS is what the others are compared with. */
static const enum copy_limit order[COPY_LIMITS] = {COPY_LOADS, COPY_NOTHING, COPY_ALL};

/* The kind of this place in a round; COPY_LIMITS: the round is over. */
static enum copy_limit kind_from(const struct copy_trial *t, uint32_t place)
{
    for (; place < COPY_LIMITS; place++) {
        enum copy_limit kind = order[place];
        if (t->tries[kind] && !t->of[kind].dropped)
            return kind;
    }
    return COPY_LIMITS;
}

static enum copy_limit kind_after(const struct copy_trial *t, enum copy_limit kind)
{
    uint32_t place = 0;
    while (order[place] != kind)
        place++;
    return kind_from(t, place + 1);
}

static void begin_block(struct copy_trial *t, enum copy_limit kind)
{
    t->limit = kind;
    t->at = t->unknown = 0;
    t->least_s = INFINITY;
}

static void begin(struct copy_trial *t)
{
    t->hold = 0;
    memset(t->of, 0, sizeof t->of);
    t->of[COPY_NOTHING].dropped = t->skips > 0;
    begin_block(t, COPY_LOADS);
}

void copy_trial_restart(struct copy_trial *t, bool predicts, bool has_cpu)
{
    *t = (struct copy_trial){
        .tries = {[COPY_ALL] = predicts, [COPY_LOADS] = true, [COPY_NOTHING] = has_cpu},
        .hold = COPY_TRIAL_WARM,
        .limit = COPY_LOADS, /* prefetches may cost more than they can save */
        .result = predicts ? COPY_ALL : COPY_LOADS,
        .prefetch_saves = NAN,
        .copies_save = NAN};
}

/* ---- The result ---- */

static double median_of_sorted(const double *values, uint32_t n)
{
    return (values[(n - 1) / 2] + values[n / 2]) / 2;
}

/* The median of a kind's ratios; NAN: it was not tried. */
static double ratio_of(const struct copy_trial *t, enum copy_limit kind)
{
    double sorted[COPY_TRIAL_ROUNDS];
    uint32_t n = t->of[kind].blocks;
    if (!n)
        return NAN;
    memcpy(sorted, t->of[kind].ratio, n * sizeof *sorted);
    sort_doubles(sorted, n);
    return median_of_sorted(sorted, n);
}

static double margin_of(const struct copy_trial *t)
{
    return fmax(t->margin, MARGIN);
}

static void decide(struct copy_trial *t)
{
    /* NAN loses every comparison */
    double all = ratio_of(t, COPY_ALL), nothing = ratio_of(t, COPY_NOTHING);
    enum copy_limit result = all <= 1 / (1 - MARGIN) ? COPY_ALL : COPY_LOADS;
    double copies = fmin(all, 1);
    if (nothing < (1 - margin_of(t)) * copies)
        result = COPY_NOTHING;
    if (!isnan(all))
        t->prefetch_saves = 1 - all;
    if (!isnan(nothing))
        t->copies_save = 1 - copies / nothing;
    if (t->skips)
        t->skips--;
    uint32_t longer = t->held < COPY_TRIAL_MOST / 2 ? 2 * t->held : COPY_TRIAL_MOST;
    t->hold = t->held = t->held && result == t->result ? longer : COPY_TRIAL_HOLD;
    t->limit = t->result = result;
    t->saved_s = (copies - nothing) * t->loads_s;
    t->held_misses_s = t->trial_misses_s;
    t->at = 0;
}

/* ---- The trial ---- */

/* A mean, because copies delay some steps much and others not at all. A step that took FAR_LONGER
 * than the median was interrupted, and counts as that. */
static double block_mean(double *values, uint32_t n)
{
    double sum = 0;
    sort_doubles(values, n);
    double most = FAR_LONGER * median_of_sorted(values, n);
    for (uint32_t i = 0; i < n; i++)
        sum += values[i] < most ? values[i] : most;
    return sum / n;
}

static bool is_slower(const struct copy_trial *t, enum copy_limit kind, double times)
{
    for (uint32_t i = 0; i < t->of[kind].blocks; i++)
        if (!(t->of[kind].ratio[i] > times))
            return false;
    return t->of[kind].blocks >= DROP_BLOCKS;
}

static void end_round(struct copy_trial *t)
{
    uint32_t rounds = t->of[COPY_LOADS].blocks;
    for (int kind = 0; kind < COPY_LIMITS; kind++)
        t->of[kind].dropped |= is_slower(t, (enum copy_limit)kind, SLOWER);
    if (is_slower(t, COPY_NOTHING, SKIP_SLOWER))
        t->skips = COPY_TRIAL_SKIPS + 1; /* with this one */
    if (rounds == COPY_TRIAL_ROUNDS || kind_after(t, COPY_LOADS) == COPY_LIMITS)
        decide(t);
    else
        begin_block(t, COPY_LOADS);
}

static void end_block(struct copy_trial *t, double mean_s)
{
    enum copy_limit kind = t->limit, next = kind_after(t, kind);
    if (kind == COPY_LOADS)
        t->loads_s = mean_s;
    t->of[kind].ratio[t->of[kind].blocks++] = mean_s / t->loads_s;
    if (next == COPY_LIMITS)
        end_round(t);
    else
        begin_block(t, next);
}

/* Whether even the shortest step of a block under way is far longer than those of COPY_LOADS. */
static bool is_far_longer(const struct copy_trial *t)
{
    if (t->limit == COPY_LOADS)
        return false;
    return (t->at == COPY_TRIAL_SETTLE && t->least_s > VERY_LONG * t->loads_s) ||
           (t->at == COPY_TRIAL_BLOCK / 2 && t->least_s > LONG * t->loads_s);
}

static void count_misses(struct copy_trial *t, double misses_s)
{
    uint32_t n = t->of[COPY_NOTHING].blocks * COUNTED + t->at - COPY_TRIAL_SETTLE;
    if (t->limit == COPY_NOTHING)
        t->trial_misses_s += (misses_s - t->trial_misses_s) / (n + 1);
}

/* A step whose time is not known is repeated. */
static void count(struct copy_trial *t, const struct copy_trial_step *step)
{
    if (!(step->took_s > 0)) {
        if (++t->unknown == SEEM_IDLE && t->limit == COPY_NOTHING)
            end_block(t, INFINITY);
        return;
    }
    t->unknown = 0;
    t->least_s = fmin(t->least_s, step->took_s);
    if (t->at >= COPY_TRIAL_SETTLE) {
        t->block_s[t->at - COPY_TRIAL_SETTLE] = step->took_s;
        count_misses(t, step->misses_s);
    }
    t->at++;
    if (t->at == COPY_TRIAL_BLOCK)
        end_block(t, block_mean(t->block_s, COUNTED));
    else if (is_far_longer(t))
        end_block(t, t->least_s);
}

/* ---- While the result serves ---- */

/* Whether misses cost more than in the trial by what steps without copies saved. */
static bool copies_are_due(struct copy_trial *t, const struct copy_trial_step *step)
{
    if (t->result != COPY_NOTHING)
        return false;
    t->held_misses_s += (step->misses_s - t->held_misses_s) / MISSES_STEPS;
    return t->at >= MISSES_STEPS && t->held_misses_s - t->trial_misses_s > t->saved_s;
}

static void hold(struct copy_trial *t, const struct copy_trial_step *step)
{
    t->at++;
    if (copies_are_due(t, step)) {
        t->margin = fmin(2 * margin_of(t), MOST_MARGIN);
        t->held = 0;
        begin(t);
    } else if (t->at == t->hold) {
        t->margin /= 2;
        begin(t);
    }
}

enum copy_limit copy_trial_limit(const struct copy_trial *t, uint32_t n_tokens, bool decodes)
{
    if (decodes && n_tokens == t->n_tokens)
        return t->limit;
    return t->result == COPY_NOTHING ? COPY_LOADS : t->result;
}

/* Other steps are compared from now on, if many of them came in a row. */
static bool is_switch(struct copy_trial *t, uint32_t n_tokens)
{
    t->others = n_tokens == t->other_tokens ? t->others + 1 : 1;
    t->other_tokens = n_tokens;
    return t->others >= COPY_TRIAL_SWITCH;
}

void copy_trial_step(struct copy_trial *t, const struct copy_trial_step *step)
{
    if (!t->n_tokens)
        t->n_tokens = step->n_tokens;
    if (step->n_tokens != t->n_tokens) {
        if (!is_switch(t, step->n_tokens))
            return;
        t->n_tokens = step->n_tokens;
        t->held = 0;
        t->margin = 0;
        begin(t);
        return;
    }
    t->other_tokens = t->others = 0;
    if (t->hold)
        hold(t, step);
    else
        count(t, step);
}
