/* The trial of the device; see device_trial.h. */
#include "device_trial.h"

#include "base/sort_doubles.h"

#include <math.h>
#include <string.h>

enum { COUNTED = DEVICE_TRIAL_BLOCK - DEVICE_TRIAL_SETTLE };
/* Copied experts stay, so steps with fewer copies profit from the steps before them. To win, they
 * must be faster by this share. */
#define MARGIN      0.02
#define MOST_MARGIN 0.32
#define FAR_LONGER  3
/* Steps whose mean cost of misses is compared. */
#define MISSES_STEPS 64
/* Of the moving mean of what the CPU alone should take. */
#define CPU_ONLY_STEPS 16
/* A kind gets no more blocks if each of its blocks, this many or more, took SLOWER times as long as
 * another's. A kind without copies is left out of the next trials if it took SKIP_SLOWER times as
 * long as DEVICE_LOADS. */
#define DROP_BLOCKS 2
#define SLOWER      1.3
#define SKIP_SLOWER 2
/* A block ends early if even its shortest step takes so many times as long: half of it, or its
 * first steps. Or if so many steps in a row take so long that they seem idle. */
#define LONG      1.5
#define VERY_LONG 4
#define SEEM_IDLE 4

/* ---- The order of blocks ---- */

/* DEVICE_LOADS is what the others are compared with. */
static const enum device_use order[DEVICE_USES] = {DEVICE_LOADS, DEVICE_KEEPS, DEVICE_UNUSED,
                                                   DEVICE_PREFETCHES};

static bool has_copies(enum device_use kind)
{
    return kind < DEVICE_KEEPS;
}

/* The kind of this place in a round; DEVICE_USES: the round is over. */
static enum device_use kind_from(const struct device_trial *t, uint32_t place)
{
    for (; place < DEVICE_USES; place++) {
        enum device_use kind = order[place];
        if (t->tries[kind] && !t->of[kind].dropped)
            return kind;
    }
    return DEVICE_USES;
}

static enum device_use kind_after(const struct device_trial *t, enum device_use kind)
{
    uint32_t place = 0;
    while (order[place] != kind)
        place++;
    return kind_from(t, place + 1);
}

static void begin_block(struct device_trial *t, enum device_use kind)
{
    t->use = kind;
    t->at = t->unknown = 0;
    t->least_s = INFINITY;
}

static void begin(struct device_trial *t)
{
    t->hold = 0;
    t->due = false;
    memset(t->of, 0, sizeof t->of);
    for (int kind = 0; kind < DEVICE_USES; kind++)
        t->of[kind].dropped = t->skips[kind] > 0;
    begin_block(t, DEVICE_LOADS);
}

void device_trial_restart(struct device_trial *t, bool predicts, bool has_cpu)
{
    *t =
        (struct device_trial){.tries = {[DEVICE_PREFETCHES] = predicts,
                                        [DEVICE_LOADS] = true,
                                        [DEVICE_KEEPS] = has_cpu,
                                        [DEVICE_UNUSED] = has_cpu},
                              .hold = DEVICE_TRIAL_WARM,
                              .use = DEVICE_LOADS, /* prefetches may cost more than they can save */
                              .result = predicts ? DEVICE_PREFETCHES : DEVICE_LOADS,
                              .prefetch_saves = NAN,
                              .copies_save = NAN,
                              .device_saves = NAN};
}

/* ---- The result ---- */

static double median_of_sorted(const double *values, uint32_t n)
{
    return (values[(n - 1) / 2] + values[n / 2]) / 2;
}

/* The median of a kind's ratios; NAN: it was not tried. */
static double ratio_of(const struct device_trial *t, enum device_use kind)
{
    double sorted[DEVICE_TRIAL_ROUNDS];
    uint32_t n = t->of[kind].blocks;
    if (!n)
        return NAN;
    memcpy(sorted, t->of[kind].ratio, n * sizeof *sorted);
    sort_doubles(sorted, n);
    return median_of_sorted(sorted, n);
}

static double margin_of(const struct device_trial *t)
{
    return fmax(t->margin, MARGIN);
}

/* Of a kind that may win. NAN, which loses every comparison: it was not tried, or dropped. */
static double ratio_left(const struct device_trial *t, enum device_use kind)
{
    return t->of[kind].dropped ? NAN : ratio_of(t, kind);
}

/* NAN: `last` stays. */
static double saves(double with, double without, double last)
{
    double now = 1 - with / without;
    return isnan(now) ? last : now;
}

static void decide(struct device_trial *t)
{
    double all = ratio_left(t, DEVICE_PREFETCHES), keeps = ratio_left(t, DEVICE_KEEPS),
           unused = ratio_left(t, DEVICE_UNUSED);
    enum device_use result = all <= 1 / (1 - MARGIN) ? DEVICE_PREFETCHES : DEVICE_LOADS;
    double copies = fmin(all, 1), device = fmin(copies, keeps);
    if (keeps < (1 - margin_of(t)) * copies)
        result = DEVICE_KEEPS;
    if (unused < (1 - MARGIN) * device)
        result = DEVICE_UNUSED;
    t->prefetch_saves = saves(ratio_of(t, DEVICE_PREFETCHES), 1, t->prefetch_saves);
    t->copies_save = saves(copies, ratio_of(t, DEVICE_KEEPS), t->copies_save);
    t->device_saves = saves(device, ratio_of(t, DEVICE_UNUSED), t->device_saves);
    for (int kind = 0; kind < DEVICE_USES; kind++)
        if (t->skips[kind])
            t->skips[kind]--;
    uint32_t longer = t->held < DEVICE_TRIAL_MOST / 2 ? 2 * t->held : DEVICE_TRIAL_MOST;
    t->hold = t->held = t->held && result == t->result ? longer : DEVICE_TRIAL_HOLD;
    t->use = t->result = result;
    t->saved_s = (copies - keeps) * t->loads_s;
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

/* Whether each of a kind's blocks took so many times as long as the other's in the same round. */
static bool is_slower(const struct device_trial *t, enum device_use kind, double times,
                      enum device_use other)
{
    uint32_t n =
        t->of[kind].blocks < t->of[other].blocks ? t->of[kind].blocks : t->of[other].blocks;
    for (uint32_t i = 0; i < n; i++)
        if (!(t->of[kind].ratio[i] > times * t->of[other].ratio[i]))
            return false;
    return n >= DROP_BLOCKS;
}

static enum device_use fastest(const struct device_trial *t)
{
    enum device_use best = DEVICE_LOADS;
    for (int kind = 0; kind < DEVICE_USES; kind++)
        if (ratio_of(t, (enum device_use)kind) < ratio_of(t, best))
            best = (enum device_use)kind;
    return best;
}

/* Drops what is far slower than the fastest. Returns whether that leaves only one. */
static bool drop_slower(struct device_trial *t)
{
    enum device_use best = fastest(t);
    uint32_t n_left = 0;
    for (int k = 0; k < DEVICE_USES; k++) {
        enum device_use kind = (enum device_use)k;
        bool slower = is_slower(t, kind, SLOWER, best);
        t->of[kind].dropped |= slower && kind != DEVICE_LOADS;
        n_left += t->tries[kind] && !t->of[kind].dropped && !slower;
        if (!has_copies(kind) && is_slower(t, kind, SKIP_SLOWER, DEVICE_LOADS))
            t->skips[kind] = DEVICE_TRIAL_SKIPS + 1; /* with this one */
    }
    return n_left == 1;
}

static void end_round(struct device_trial *t)
{
    if (drop_slower(t) || t->of[DEVICE_LOADS].blocks == DEVICE_TRIAL_ROUNDS ||
        kind_after(t, DEVICE_LOADS) == DEVICE_USES)
        decide(t);
    else
        begin_block(t, DEVICE_LOADS);
}

/* Whether the CPU alone may be fast enough to be tried. */
static bool is_near(const struct device_trial *t)
{
    return t->cpu_only > 0 && t->cpu_only < SLOWER;
}

static void end_block(struct device_trial *t, double mean_s)
{
    enum device_use kind = t->use, next;
    if (kind == DEVICE_LOADS)
        t->loads_s = mean_s;
    t->of[kind].ratio[t->of[kind].blocks++] = mean_s / t->loads_s;
    if (kind == DEVICE_LOADS && t->of[kind].blocks == 1)
        t->of[DEVICE_UNUSED].dropped |= !is_near(t);
    next = kind_after(t, kind);
    if (next == DEVICE_USES)
        end_round(t);
    else
        begin_block(t, next);
}

/* Whether even the shortest step of a block under way is far longer than those of DEVICE_LOADS. */
static bool is_far_longer(const struct device_trial *t)
{
    if (t->use == DEVICE_LOADS)
        return false;
    return (t->at == DEVICE_TRIAL_SETTLE && t->least_s > VERY_LONG * t->loads_s) ||
           (t->at == DEVICE_TRIAL_BLOCK / 2 && t->least_s > LONG * t->loads_s);
}

static void count_misses(struct device_trial *t, double misses_s)
{
    uint32_t n = t->of[DEVICE_KEEPS].blocks * COUNTED + t->at - DEVICE_TRIAL_SETTLE;
    if (t->use == DEVICE_KEEPS)
        t->trial_misses_s += (misses_s - t->trial_misses_s) / (n + 1);
}

/* A step whose time is not known is repeated. */
static void count(struct device_trial *t, const struct device_trial_step *step)
{
    if (!(step->took_s > 0)) {
        if (++t->unknown == SEEM_IDLE && !has_copies(t->use))
            end_block(t, INFINITY);
        return;
    }
    t->unknown = 0;
    t->least_s = fmin(t->least_s, step->took_s);
    if (t->at >= DEVICE_TRIAL_SETTLE) {
        t->block_s[t->at - DEVICE_TRIAL_SETTLE] = step->took_s;
        count_misses(t, step->misses_s);
    }
    t->at++;
    if (t->at == DEVICE_TRIAL_BLOCK)
        end_block(t, block_mean(t->block_s, COUNTED));
    else if (is_far_longer(t))
        end_block(t, t->least_s);
}

/* ---- While the result serves ---- */

/* Whether misses cost more than in the trial by what steps without copies saved. */
static bool copies_are_due(struct device_trial *t, const struct device_trial_step *step)
{
    if (t->result != DEVICE_KEEPS)
        return false;
    t->held_misses_s += (step->misses_s - t->held_misses_s) / MISSES_STEPS;
    return t->at >= MISSES_STEPS && t->held_misses_s - t->trial_misses_s > t->saved_s;
}

/* What steps use that are not compared: the last result, but they load. */
static enum device_use use_of_others(const struct device_trial *t)
{
    return has_copies(t->result) ? t->result : DEVICE_LOADS;
}

/* Until then the predictor sees the steps, and the device fills. */
static void await_trial(struct device_trial *t, uint32_t hold)
{
    t->hold = hold;
    t->held = 0;
    t->due = true;
    t->use = use_of_others(t);
}

static void hold(struct device_trial *t, const struct device_trial_step *step)
{
    t->at++;
    if (!t->due && copies_are_due(t, step)) {
        uint32_t warm = t->at + DEVICE_TRIAL_WARM;
        t->margin = fmin(2 * margin_of(t), MOST_MARGIN);
        await_trial(t, t->hold < warm ? t->hold : warm);
    }
    if (t->at < t->hold)
        return;
    if (!t->due)
        t->margin /= 2;
    begin(t);
}

static bool is_compared(const struct device_trial *t, uint32_t n_tokens, bool decodes)
{
    return decodes && n_tokens == t->n_tokens;
}

enum device_use device_trial_use(const struct device_trial *t, uint32_t n_tokens, bool decodes)
{
    return is_compared(t, n_tokens, decodes) ? t->use : use_of_others(t);
}

/* Not in a trial's blocks of the other kinds: these are what prefetching is compared with, and
 * predicting costs time. */
bool device_trial_shows(const struct device_trial *t, uint64_t step, uint32_t n_tokens,
                        bool decodes)
{
    bool compared = is_compared(t, n_tokens, decodes);
    if (!t->tries[DEVICE_PREFETCHES] || (compared && !t->hold))
        return false;
    return (compared && t->hold - t->at <= DEVICE_TRIAL_WARM) ||
           step % DEVICE_TRIAL_SHOWN == DEVICE_TRIAL_SHOWN_AT;
}

/* Other steps are compared from now on, if many of them came in a row. */
static bool is_switch(struct device_trial *t, uint32_t n_tokens)
{
    t->others = n_tokens == t->other_tokens ? t->others + 1 : 1;
    t->other_tokens = n_tokens;
    return t->others >= DEVICE_TRIAL_SWITCH;
}

static void follow_cpu_only(struct device_trial *t, const struct device_trial_step *step)
{
    if (t->use == DEVICE_UNUSED || !(step->took_s > 0) || !(step->cpu_only_s > 0))
        return;
    double now = step->cpu_only_s / step->took_s;
    t->cpu_only += (now - t->cpu_only) / (t->cpu_only > 0 ? CPU_ONLY_STEPS : 1);
}

void device_trial_step(struct device_trial *t, const struct device_trial_step *step)
{
    if (!t->n_tokens)
        t->n_tokens = step->n_tokens;
    if (step->n_tokens != t->n_tokens) {
        if (!is_switch(t, step->n_tokens))
            return;
        t->n_tokens = step->n_tokens;
        t->margin = t->cpu_only = 0;
        t->at = t->unknown = 0;
        await_trial(t, DEVICE_TRIAL_WARM);
        return;
    }
    t->other_tokens = t->others = 0;
    follow_cpu_only(t, step);
    if (t->hold)
        hold(t, step);
    else
        count(t, step);
}
