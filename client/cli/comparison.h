/* Two models on the same tokens: the difference of their log-probabilities, paired, and the
 * Kullback-Leibler divergence of the other one's from the base's.
 *
 * Of each place only the most probable tokens of both are known. The divergence is that of the
 * distributions over coarser events: each token that both lists have, the token that stands there,
 * and all others as one. By the log-sum inequality it is a lower bound of the whole divergence, and
 * the divergence itself where the lists have the whole vocabulary. */
#ifndef MOED_CLI_COMPARISON_H
#define MOED_CLI_COMPARISON_H

#include "client/cli/estimate.h"

/* What a model gives for a place. */
struct comparison_side {
    float logprob;       /* of the token that stands there */
    const uint32_t *top; /* [n], the most probable first */
    const float *top_logprobs;
    uint32_t n;
};

struct comparison {
    struct estimate delta;          /* of the other's negative log-likelihood less the base's */
    struct estimate base;           /* of the base's */
    double *divergences;            /* [count], in nats */
    size_t count, window, capacity; /* in finished windows; and in the current one */
    uint64_t same, window_same;     /* places with the same most probable token */
    double rest, window_rest;       /* sums of what the base gives to all other tokens */
};

struct comparison_result {
    struct estimate_result delta, base;
    double mean, median, q99, most; /* of the divergence */
    double rest;                    /* the mean probability that the base gives to the others */
    double same_top;                /* share of the places */
};

void comparison_fini(struct comparison *c); /* takes a zeroed struct */
/* The divergence at a place where `token` stands; *rest: what the base gives to all others. */
double comparison_divergence(uint32_t token, const struct comparison_side *base,
                             const struct comparison_side *other, double *rest);
/* Adds a place to the current window. False: no memory. */
bool comparison_add(struct comparison *c, uint32_t token, const struct comparison_side *base,
                    const struct comparison_side *other);
bool comparison_end_window(struct comparison *c);
/* Over the finished windows; NaN where there is none. Sorts c->divergences. */
struct comparison_result comparison_get(struct comparison *c);

#endif
