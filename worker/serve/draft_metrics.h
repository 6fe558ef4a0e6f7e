/* What the metrics say of drafts (speculation.h): how many, how often right, what they cost, and
 * why a draft that was found was not computed.
 *
 * Threads: the engine's changes them, any thread reads. */
#ifndef MOED_WORKER_SERVE_DRAFT_METRICS_H
#define MOED_WORKER_SERVE_DRAFT_METRICS_H

#include "metrics/metrics.h"
#include "model/speculate.h"
#include "speculation.h"

struct draft_metrics {
    struct counter *drafted, *accepted;          /* tokens */
    struct counter *accepted_at[SPECULATE_MOST]; /* by their place in the draft */
    struct counter *steps;                       /* with drafts */
    struct counter *declined[DRAFT_DECLINES];    /* drafts of which nothing was computed */
    _Atomic int64_t plain_step_ns, draft_row_ns; /* as of the last decode step */
};

/* Where s never drafts, only the totals. */
void draft_metrics_register(struct draft_metrics *d, struct metrics *m,
                            const struct speculation *s);

/* Nothing of a draft was computed. Returns 0: so many. */
uint32_t draft_metrics_decline(struct draft_metrics *d, enum draft_decline reason);
/* The token at this place of a draft, from 0 on, was right. */
void draft_metrics_accept(struct draft_metrics *d, uint32_t place);
/* A decode step of n_streams requests has ended, with n_drafts drafts. */
void draft_metrics_note_step(struct draft_metrics *d, const struct speculation *s,
                             uint32_t n_streams, uint32_t n_drafts);

#endif
