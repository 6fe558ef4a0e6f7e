/* How many drafts (draft.h) a decode step computes: whether it pays to.
 *
 * A draft's row costs time: it reads experts of its own, and on a CPU computing counts. So a
 * draft pays where the probability that it is right times the step's time for each token is more
 * than its row's time. Both are measured while serving, by the number of requests in the step:
 * steps without drafts, and what a row of a draft adds.
 *
 * The circuit breaker: an account of time. Each step pays two per cent of its time in; a step with
 * drafts pays in what the tokens that it gained would have taken, and takes out what its drafts
 * took. While it is overdrawn nothing is drafted. So drafting that does not pay costs two per cent.
 *
 * Pure: no clock. The engine's thread. */
#ifndef MOED_WORKER_SERVE_SPECULATION_H
#define MOED_WORKER_SERVE_SPECULATION_H

#include "draft.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    SPECULATION_DRAFTS = 7,   /* of a request in a step, where the engine chooses: more rows save
                                 little more, and a device's graphs are for eight */
    SPECULATION_LAST = 15,    /* steps that are measured */
    SPECULATION_STREAMS = 16, /* steps of more requests have no drafts then */
};

/* The lower quartile of the last values: on a machine with other work some steps take many times as
 * long. */
struct speculation_quartile {
    double last[SPECULATION_LAST];
    uint32_t n; /* values so far */
};

/* The mean of many recent values: it has the interruptions, too. */
struct speculation_mean {
    double value, weight;
};

/* Of steps with a number of requests. Quartiles are exact where the machine is quiet. Where it is
 * so busy that most steps with drafts are interrupted, because they are longer, only means compare.
 */
struct speculation_times {
    struct speculation_quartile plain_times, row_shares;
    struct speculation_mean plain_mean, row_mean; /* in units of plain_ns */
    double plain_ns;  /* of a step without drafts, not interrupted; 0: not known */
    double row_share; /* of plain_ns, that a draft adds; it holds while the machine slows down */
    double probed_ns; /* plain_ns when row_share was measured last */
    bool quiet;       /* the last steps with drafts were not interrupted */
    uint32_t probes_left; /* steps with drafts that measure row_share */
    uint32_t drafting;    /* steps with drafts since the last one without */
    uint32_t plain;       /* steps without drafts since the last one with */
};

struct speculation {
    uint32_t most;  /* drafts of a request; 0: none */
    bool automatic; /* else always `most` */
    struct speculation_times times[SPECULATION_STREAMS + 1];
    double account_ns;
    struct draft_rates rates; /* of all requests */
};

/* speculate: of model/speculate.h. */
void speculation_init(struct speculation *s, uint32_t speculate);

/* Why a step computes nothing of a draft. From DRAFT_DOES_NOT_PAY on: where the engine chooses. */
enum draft_decline {
    DRAFT_NO_ROWS,      /* other answers, or prompts, have the rows of the step */
    DRAFT_NO_PAGES,     /* of the KV cache */
    DRAFT_DOES_NOT_PAY, /* it is too improbable */
    DRAFT_OVERDRAWN,    /* the account is */
    DRAFT_MEASURES,     /* the step measures what one without drafts takes */
    DRAFT_MANY_STREAMS, /* more than SPECULATION_STREAMS */
    DRAFT_DECLINES      /* how many these are */
};

/* A step of n_streams requests that is being made up. */
struct speculation_step {
    struct speculation_times *times; /* NULL: nothing is measured */
    bool drafts, probe;
    enum draft_decline declined; /* where drafts is false */
    double ns, tokens;           /* expected */
};
struct speculation_step speculation_begin(struct speculation *s, uint32_t n_streams);
/* How many tokens of d, which has a draft, the step shall compute, at most `most`. */
uint32_t speculation_choose(const struct speculation *s, struct speculation_step *step,
                            const struct draft *d, uint32_t most);
/* Why speculation_choose returned 0. */
enum draft_decline speculation_declined(const struct speculation_step *step, uint32_t most);
/* The step has taken ns, with n_drafts drafts, of which n_accepted were right. */
void speculation_account(struct speculation *s, uint32_t n_streams, uint32_t n_drafts,
                         uint32_t n_accepted, double ns);

/* What a step of n_streams requests without drafts takes, and what a draft adds; 0: not known. */
struct speculation_cost {
    double plain_ns, row_ns;
};
struct speculation_cost speculation_cost(const struct speculation *s, uint32_t n_streams);

#endif
