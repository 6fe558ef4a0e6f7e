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

/* A kind that is slower than the fastest one by this share after so many rounds gets no more
 * blocks. */
static const double far_slower[COPY_TRIAL_ROUNDS] = {1, 0.3, INFINITY, INFINITY};
/* A block ends if even its shortest step takes so many times as long as the fastest kind's mean,
 * or if so many steps in a row take so long that they seem idle. */
#define HOPELESS 1.5
#define SAMPLES  4

/* ---- The order of blocks ---- */

/* Prefetches and missing loads may cost most. The fastest kind before them cuts such a block
 * short. */
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
    t->hold = t->rounds = 0;
    memset(t->of, 0, sizeof t->of);
    if (t->skips && t->tries[COPY_NOTHING]) {
        t->skips--;
        t->of[COPY_NOTHING].dropped = true;
    }
    begin_block(t, kind_from(t, 0));
}

void copy_trial_restart(struct copy_trial *t, bool predicts, bool has_cpu)
{
    *t = (struct copy_trial){
        .tries = {[COPY_ALL] = predicts, [COPY_LOADS] = true, [COPY_NOTHING] = has_cpu},
        .result = predicts ? COPY_ALL : COPY_LOADS,
        .prefetch_saves = NAN,
        .copies_save = NAN};
    begin(t);
}

/* ---- The result ---- */

/* Seconds of a step of this kind; INFINITY: it was not tried. */
static double mean_s(const struct copy_trial *t, enum copy_limit kind)
{
    return t->of[kind].blocks ? t->of[kind].took_s / t->of[kind].blocks : INFINITY;
}

static double best_s(const struct copy_trial *t)
{
    return fmin(fmin(mean_s(t, COPY_ALL), mean_s(t, COPY_LOADS)), mean_s(t, COPY_NOTHING));
}

static double margin_of(const struct copy_trial *t)
{
    return fmax(t->margin, MARGIN);
}

static void decide(struct copy_trial *t)
{
    double all_s = mean_s(t, COPY_ALL), loads_s = mean_s(t, COPY_LOADS),
           nothing_s = mean_s(t, COPY_NOTHING), copies_s = fmin(all_s, loads_s);
    enum copy_limit result = loads_s < (1 - MARGIN) * all_s ? COPY_LOADS : COPY_ALL;
    if (nothing_s < (1 - margin_of(t)) * copies_s)
        result = COPY_NOTHING;
    if (t->of[COPY_ALL].blocks)
        t->prefetch_saves = 1 - all_s / loads_s;
    if (t->of[COPY_NOTHING].blocks)
        t->copies_save = 1 - copies_s / nothing_s;
    uint32_t longer = t->held < COPY_TRIAL_MOST / 2 ? 2 * t->held : COPY_TRIAL_MOST;
    t->hold = t->held = t->held && result == t->result ? longer : COPY_TRIAL_HOLD;
    t->limit = t->result = result;
    t->held_misses_s = t->of[COPY_NOTHING].misses_s / t->of[COPY_NOTHING].blocks;
    t->at = 0;
}

/* ---- The trial ---- */

/* A mean, because copies delay some steps much and others not at all. A step that took FAR_LONGER
 * than the median was interrupted, and counts as that. */
static double block_mean(double *values, uint32_t n)
{
    double sum = 0;
    sort_doubles(values, n);
    double most = FAR_LONGER * (values[(n - 1) / 2] + values[n / 2]) / 2;
    for (uint32_t i = 0; i < n; i++)
        sum += values[i] < most ? values[i] : most;
    return sum / n;
}

static void drop(struct copy_trial *t, enum copy_limit kind)
{
    t->of[kind].dropped = true;
    if (kind == COPY_NOTHING && t->rounds == 0)
        t->skips = COPY_TRIAL_SKIPS;
}

static void end_round(struct copy_trial *t)
{
    double best = best_s(t);
    uint32_t left = 0;
    for (enum copy_limit kind = kind_from(t, 0); kind < COPY_LIMITS; kind = kind_after(t, kind)) {
        if (mean_s(t, kind) > (1 + far_slower[t->rounds]) * best)
            drop(t, kind);
        else
            left++;
    }
    begin_block(t, kind_from(t, 0));
    if (++t->rounds == COPY_TRIAL_ROUNDS || left == 1)
        decide(t);
}

static void end_block(struct copy_trial *t, double mean)
{
    t->of[t->limit].took_s += mean;
    t->of[t->limit].blocks++;
    enum copy_limit next = kind_after(t, t->limit);
    if (next == COPY_LIMITS)
        end_round(t);
    else
        begin_block(t, next);
}

/* A step whose time is not known is repeated. */
static void count(struct copy_trial *t, const struct copy_trial_step *step)
{
    if (!(step->took_s > 0)) {
        if (++t->unknown == SAMPLES && t->limit == COPY_NOTHING) {
            drop(t, t->limit);
            end_block(t, INFINITY);
        }
        return;
    }
    t->unknown = 0;
    t->least_s = fmin(t->least_s, step->took_s);
    if (t->at >= COPY_TRIAL_SETTLE) {
        t->block_s[t->at - COPY_TRIAL_SETTLE] = step->took_s;
        t->of[t->limit].misses_s += step->misses_s / COUNTED;
    }
    t->at++;
    if (t->at == COPY_TRIAL_BLOCK) {
        end_block(t, block_mean(t->block_s, COUNTED));
    } else if (t->at >= COPY_TRIAL_SETTLE + SAMPLES && t->least_s > HOPELESS * best_s(t)) {
        drop(t, t->limit);
        end_block(t, t->least_s);
    }
}

/* ---- While the result serves ---- */

/* Whether misses cost more than in the trial by what steps without copies saved. */
static bool copies_are_due(struct copy_trial *t, const struct copy_trial_step *step)
{
    if (t->result != COPY_NOTHING)
        return false;
    t->held_misses_s += (step->misses_s - t->held_misses_s) / MISSES_STEPS;
    double saved_s = fmin(mean_s(t, COPY_ALL), mean_s(t, COPY_LOADS)) - mean_s(t, COPY_NOTHING);
    double trial_misses_s = t->of[COPY_NOTHING].misses_s / t->of[COPY_NOTHING].blocks;
    return t->at >= MISSES_STEPS && t->held_misses_s - trial_misses_s > saved_s;
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

bool copy_trial_may_load(const struct copy_trial *t, uint32_t n_tokens, bool decodes)
{
    return t->limit != COPY_NOTHING || n_tokens != t->n_tokens || !decodes;
}

void copy_trial_step(struct copy_trial *t, const struct copy_trial_step *step)
{
    if (!t->n_tokens)
        t->n_tokens = step->n_tokens;
    if (step->n_tokens != t->n_tokens &&
        ++t->others < COPY_TRIAL_BLOCK) /* a prompt, or the end of a request */
        return;
    if (step->n_tokens != t->n_tokens) {
        t->n_tokens = step->n_tokens;
        t->held = 0;
        t->margin = 0;
        begin(t);
    }
    t->others = 0;
    if (t->hold)
        hold(t, step);
    else
        count(t, step);
}
