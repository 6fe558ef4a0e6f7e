/* Metrics of drafts; see draft_metrics.h. */
#include "draft_metrics.h"

#include <stdio.h>

static double read_plain_step(void *arg)
{
    struct draft_metrics *d = arg;
    return 1e-9 * (double)atomic_load_explicit(&d->plain_step_ns, memory_order_relaxed);
}

static double read_draft_row(void *arg)
{
    struct draft_metrics *d = arg;
    return 1e-9 * (double)atomic_load_explicit(&d->draft_row_ns, memory_order_relaxed);
}

static void register_measured(struct draft_metrics *d, struct metrics *m)
{
    metrics_gauge_function(m, "moed_worker_plain_step_seconds", NULL, read_plain_step, d,
                           "What a step without drafts takes, of as many requests as the last "
                           "decode step; 0: not measured yet.");
    metrics_gauge_function(m, "moed_worker_draft_row_seconds", NULL, read_draft_row, d,
                           "What a draft adds to it; 0: not measured yet.");
}

static void register_declined(struct draft_metrics *d, struct metrics *m, bool automatic)
{
    static const char *const labels[DRAFT_DECLINES] = {
        [DRAFT_NO_ROWS] = "reason=\"rows\"",         [DRAFT_NO_PAGES] = "reason=\"pages\"",
        [DRAFT_DOES_NOT_PAY] = "reason=\"pays\"",    [DRAFT_OVERDRAWN] = "reason=\"account\"",
        [DRAFT_MEASURES] = "reason=\"measurement\"", [DRAFT_MANY_STREAMS] = "reason=\"requests\"",
    };
    int n = automatic ? DRAFT_DECLINES : DRAFT_DOES_NOT_PAY; /* the rest is what `auto` decides */
    for (int i = 0; i < n; i++)
        d->declined[i] = metrics_counter(m, "moed_worker_declined_drafts_total", labels[i], 1,
                                         "Drafts that were found, but not computed, by reason.");
}

static void register_accepted(struct draft_metrics *d, struct metrics *m)
{
    for (int i = 0; i < SPECULATE_MOST; i++) {
        char label[24];
        snprintf(label, sizeof label, "position=\"%d\"", i + 1);
        d->accepted_at[i] = metrics_counter(m, "moed_worker_accepted_tokens_per_position_total",
                                            label, 1, "The same by their place in the draft.");
    }
}

void draft_metrics_register(struct draft_metrics *d, struct metrics *m, const struct speculation *s)
{
    d->drafted = metrics_counter(m, "moed_worker_drafted_tokens_total", NULL, 1,
                                 "Drafts of tokens that decode steps computed.");
    d->accepted = metrics_counter(m, "moed_worker_accepted_tokens_total", NULL, 1,
                                  "Drafts of tokens that were right.");
    if (!s->most)
        return;
    register_accepted(d, m);
    d->steps = metrics_counter(m, "moed_worker_draft_steps_total", NULL, 1,
                               "Decode steps that computed drafts.");
    register_declined(d, m, s->automatic);
    if (s->automatic)
        register_measured(d, m);
}

uint32_t draft_metrics_decline(struct draft_metrics *d, enum draft_decline reason)
{
    counter_add(d->declined[reason], 1);
    return 0;
}

void draft_metrics_accept(struct draft_metrics *d, uint32_t place)
{
    counter_add(d->accepted, 1);
    counter_add(d->accepted_at[place < SPECULATE_MOST ? place : SPECULATE_MOST - 1], 1);
}

void draft_metrics_note_step(struct draft_metrics *d, const struct speculation *s,
                             uint32_t n_streams, uint32_t n_drafts)
{
    if (!s->most)
        return;
    struct speculation_cost cost = speculation_cost(s, n_streams);
    counter_add(d->steps, n_drafts > 0);
    atomic_store_explicit(&d->plain_step_ns, (int64_t)cost.plain_ns, memory_order_relaxed);
    atomic_store_explicit(&d->draft_row_ns, (int64_t)cost.row_ns, memory_order_relaxed);
}
