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
    FAR_LONGER = 2      /* of a step that was interrupted, as many times the usual time counts */
};
#define SHARE        0.02 /* of the time, that drafting may cost */
#define MARGIN       1.05 /* of what is measured in a noisy world */
#define PROBE_CHANCE 0.5f /* a draft less probable than this is no good probe */

static const struct draft_rates FIRST_RATES = {{0.3f, 0.4f, 0.5f, 0.7f, 0.9f}};

void speculation_init(struct speculation *s, uint32_t speculate)
{
    *s = (struct speculation){.automatic = speculate == SPECULATE_AUTO, .rates = FIRST_RATES};
    s->most = s->automatic ? SPECULATION_DRAFTS : speculate;
    for (uint32_t i = 0; i <= SPECULATION_STREAMS; i++)
        s->times[i].probes_left = FIRST_PROBES;
}

static bool may_draft(const struct speculation *s, const struct speculation_times *t)
{
    return t->plain_ns > 0 && t->drafting < PLAIN_EVERY && s->account_ns > 0;
}

struct speculation_step speculation_begin(struct speculation *s, uint32_t n_streams)
{
    struct speculation_step step = {.drafts = s->most > 0};
    if (!s->automatic)
        return step;
    if (n_streams > SPECULATION_STREAMS)
        return (struct speculation_step){0};
    struct speculation_times *t = step.times = &s->times[n_streams];
    if (t->plain >= PROBE_EVERY && !t->probes_left)
        t->probes_left = PROBES;
    step.drafts = may_draft(s, t);
    step.probe = t->probes_left > 0;
    step.ns = t->plain_ns;
    step.tokens = n_streams;
    return step;
}

/* Whether one more draft, right with this probability, shortens the time of each token. */
static bool pays(const struct speculation_step *step, float probability)
{
    if (step->probe)
        return probability >= PROBE_CHANCE;
    return (double)probability * step->ns > MARGIN * step->times->row_ns * step->tokens;
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
        step->ns += step->times->row_ns;
        step->tokens += (double)probability;
    }
    return n;
}

/* Adds a value, and returns the median of the last ones. */
static double add_time(struct speculation_median *m, double value)
{
    double sorted[SPECULATION_MEDIAN];
    m->last[m->n++ % SPECULATION_MEDIAN] = value;
    uint32_t n = m->n < SPECULATION_MEDIAN ? m->n : SPECULATION_MEDIAN;
    memcpy(sorted, m->last, n * sizeof *sorted);
    sort_doubles(sorted, n);
    return sorted[n / 2];
}

static void account_plain(struct speculation *s, struct speculation_times *t, double ns)
{
    t->drafting = 0;
    t->plain++;
    t->plain_ns = add_time(&t->plain_times, ns);
    s->account_ns += SHARE * t->plain_ns;
}

static void account_drafts(struct speculation *s, struct speculation_times *t, uint32_t n_streams,
                           uint32_t n_drafts, uint32_t n_accepted, double ns)
{
    t->drafting++;
    t->plain = 0;
    t->probes_left -= t->probes_left > 0;
    t->row_ns = add_time(&t->row_times, (ns - t->plain_ns) / n_drafts);
    double most = FAR_LONGER * (t->plain_ns + n_drafts * (t->row_ns > 0 ? t->row_ns : 0));
    ns = ns < most ? ns : most;
    s->account_ns += SHARE * ns + t->plain_ns * n_accepted / n_streams - (ns - t->plain_ns);
}

static double within(double value, double least, double most)
{
    return value < least ? least : value > most ? most : value;
}

void speculation_account(struct speculation *s, uint32_t n_streams, uint32_t n_drafts,
                         uint32_t n_accepted, double ns)
{
    if (!s->automatic || n_streams == 0 || n_streams > SPECULATION_STREAMS)
        return;
    struct speculation_times *t = &s->times[n_streams];
    if (!n_drafts)
        account_plain(s, t, ns);
    else if (t->plain_ns > 0)
        account_drafts(s, t, n_streams, n_drafts, n_accepted, ns);
    s->account_ns = within(s->account_ns, ACCOUNT_LEAST * t->plain_ns, ACCOUNT_MOST * t->plain_ns);
}
