/* How many drafts a step computes; see speculation.h. */
#include "speculation.h"

#include "base/sort_doubles.h"
#include "model/speculate.h"

#include <string.h>

enum {
    FIRST_PROBES = 8,
    PROBES = 2,         /* later, every */
    PROBE_EVERY = 256,  /* steps without drafts */
    PROBE_ROWS = 3,     /* drafts of a probe */
    PLAIN_EVERY = 32,   /* a step without drafts measures plain_ns again */
    ACCOUNT_MOST = 8,   /* the account is at most the time of as many steps, */
    ACCOUNT_LEAST = -4, /* and at least of so many: one slow step is no verdict */
    MEAN_ROWS = 24,     /* a mean of fewer says nothing */
    MEAN_STEPS = 160,   /* and rows, that a mean is of; */
    FAR_LONGER = 16     /* of a step that was interrupted, as many times the mean counts */
};
#define SHARE        0.02 /* of the time, that drafting may cost */
#define MARGIN       1.05 /* of what is measured in a noisy world */
#define CHANGED      1.25 /* times plain_ns, up or down: rows may cost another share now */
#define QUIET        0.25 /* of a step: rows differ by less where no other work interrupts */
#define PROBE_CHANCE 0.5f /* a draft less probable than this is no good probe */

static const struct draft_rates FIRST_RATES = {{0.3f, 0.4f, 0.5f, 0.7f, 0.9f}};

void speculation_init(struct speculation *s, uint32_t speculate)
{
    *s = (struct speculation){.automatic = speculate == SPECULATE_AUTO, .rates = FIRST_RATES};
    s->most = s->automatic ? SPECULATION_DRAFTS : speculate;
    for (uint32_t i = 0; i <= SPECULATION_STREAMS; i++)
        s->times[i].probes_left = FIRST_PROBES;
}

static bool must_measure(const struct speculation_times *t)
{
    return t->plain_ns <= 0 || t->drafting >= PLAIN_EVERY;
}

struct speculation_step speculation_begin(struct speculation *s, uint32_t n_streams)
{
    struct speculation_step step = {.drafts = s->most > 0};
    if (!s->automatic)
        return step;
    if (n_streams > SPECULATION_STREAMS)
        return (struct speculation_step){.declined = DRAFT_MANY_STREAMS};
    struct speculation_times *t = step.times = &s->times[n_streams];
    if (t->plain >= PROBE_EVERY && !t->probes_left)
        t->probes_left = PROBES;
    step.drafts = !must_measure(t) && s->account_ns > 0;
    step.declined = must_measure(t) ? DRAFT_MEASURES : DRAFT_OVERDRAWN;
    step.probe = t->probes_left > 0;
    step.ns = t->plain_ns;
    step.tokens = n_streams;
    return step;
}

/* That a draft adds to a step that takes plain_ns without it. */
static double row_ns(const struct speculation_times *t)
{
    double of_means = t->row_mean.value / t->plain_mean.value;
    bool known = !t->quiet && t->row_mean.weight >= MEAN_ROWS;
    return t->plain_ns * (known && of_means < t->row_share ? of_means : t->row_share);
}

/* Whether one more draft, right with this probability, shortens the time of each token. */
static bool pays(const struct speculation_step *step, float probability)
{
    if (step->probe)
        return probability >= PROBE_CHANCE;
    return (double)probability * step->ns > MARGIN * row_ns(step->times) * step->tokens;
}

uint32_t speculation_choose(const struct speculation *s, struct speculation_step *step,
                            const struct draft *d, uint32_t most)
{
    float probability = 1;
    uint32_t n = 0;
    most = most < s->most ? most : s->most;
    if (!step->drafts)
        return 0;
    if (!s->automatic)
        return most;
    most = step->probe && most > PROBE_ROWS ? PROBE_ROWS : most;
    for (; n < most; n++) {
        probability *= draft_rate(d, n);
        if (!pays(step, probability))
            break;
        step->ns += row_ns(step->times);
        step->tokens += (double)probability;
    }
    return n;
}

enum draft_decline speculation_declined(const struct speculation_step *step, uint32_t most)
{
    if (most == 0)
        return DRAFT_NO_ROWS;
    return step->drafts ? DRAFT_DOES_NOT_PAY : step->declined;
}

struct speculation_cost speculation_cost(const struct speculation *s, uint32_t n_streams)
{
    if (n_streams > SPECULATION_STREAMS)
        return (struct speculation_cost){0};
    const struct speculation_times *t = &s->times[n_streams];
    return (struct speculation_cost){t->plain_ns, row_ns(t)};
}

/* Adds a value, and returns the lower quartile of the last ones. *spread: to the upper one; may be
 * NULL. */
static double add_time(struct speculation_quartile *q, double value, double *spread)
{
    double sorted[SPECULATION_LAST];
    q->last[q->n++ % SPECULATION_LAST] = value;
    uint32_t n = q->n < SPECULATION_LAST ? q->n : SPECULATION_LAST;
    memcpy(sorted, q->last, n * sizeof *sorted);
    sort_doubles(sorted, n);
    if (spread)
        *spread = sorted[n - 1 - n / 4] - sorted[n / 4];
    return sorted[n / 4];
}

static double within(double value, double least, double most)
{
    return value < least ? least : value > most ? most : value;
}

static void add_to_mean(struct speculation_mean *m, double value, double weight)
{
    m->weight = within(m->weight + weight, 0, MEAN_STEPS);
    m->value += (value - m->value) * within(weight / m->weight, 0, 1);
}

/* The steps of another time say little of what a row costs now: when experts are loaded that are
 * resident later, or other work has come or gone. */
static void notice_change(struct speculation_times *t)
{
    bool changed = t->plain_ns > CHANGED * t->probed_ns || t->plain_ns * CHANGED < t->probed_ns;
    if (!changed)
        return;
    if (t->probed_ns > 0)
        t->probes_left = FIRST_PROBES;
    t->row_shares.n = 0;
    t->row_mean.weight = 0;
    t->probed_ns = t->plain_ns;
}

static void account_plain(struct speculation *s, struct speculation_times *t, double ns)
{
    t->drafting = 0;
    t->plain++;
    t->plain_ns = add_time(&t->plain_times, ns, NULL);
    double most = t->plain_mean.weight > 0 ? FAR_LONGER * t->plain_mean.value : 1;
    add_to_mean(&t->plain_mean, within(ns / t->plain_ns, 1, most), 1);
    notice_change(t);
    s->account_ns += SHARE * t->plain_ns * t->plain_mean.value;
}

static void note_row(struct speculation_times *t, double share)
{
    double spread;
    t->row_share = add_time(&t->row_shares, share, &spread);
    t->quiet = spread < QUIET;
}

static void account_drafts(struct speculation *s, struct speculation_times *t, uint32_t n_streams,
                           uint32_t n_drafts, uint32_t n_accepted, double ns)
{
    double plain = t->plain_mean.value, units = ns / t->plain_ns;
    bool plain_is_stale = units * CHANGED < 1;
    t->drafting = plain_is_stale ? PLAIN_EVERY : t->drafting + 1;
    t->plain = 0;
    t->probes_left -= t->probes_left > 0;
    t->probed_ns = t->plain_ns;
    note_row(t, (units - 1) / n_drafts);
    units = within(units, 0, FAR_LONGER * plain * (1 + n_drafts * within(t->row_share, 0, 1)));
    add_to_mean(&t->row_mean, (units - plain) / n_drafts, n_drafts);
    bool known = t->row_mean.weight >= MEAN_ROWS; /* else one interruption would decide */
    double took = known ? t->row_mean.value * n_drafts : units - plain;
    double gained = plain * n_accepted / n_streams - took;
    s->account_ns += (SHARE * units + gained) * t->plain_ns;
}

void speculation_account(struct speculation *s, uint32_t n_streams, uint32_t n_drafts,
                         uint32_t n_accepted, double ns)
{
    if (!s->automatic || n_streams == 0 || n_streams > SPECULATION_STREAMS)
        return;
    struct speculation_times *t = &s->times[n_streams];
    ns = ns > 1 ? ns : 1;
    if (!n_drafts)
        account_plain(s, t, ns);
    else if (t->plain_ns > 0)
        account_drafts(s, t, n_streams, n_drafts, n_accepted, ns);
    double unit = t->plain_mean.value * t->plain_ns;
    s->account_ns = within(s->account_ns, ACCOUNT_LEAST * unit, ACCOUNT_MOST * unit);
}
