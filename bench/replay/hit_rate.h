/* The hit rate of a cache that loads whole experts on demand, token by token. The papers' tables of
 * cache policies count hits in this way. */
#ifndef MOED_REPLAY_HIT_RATE_H
#define MOED_REPLAY_HIT_RATE_H

#include "sched/cache/cache.h"

/* The choices of consecutive tokens. */
struct routes {
    uint32_t n_tokens, n_layers, n_experts, n_used;
    const uint16_t *selected; /* [n_tokens][n_layers][n_used] */
};

/* The share of (token, layer, expert) triples whose expert was cached when its layer was routed.
 * The cache is empty at first. cached: experts a layer; each layer has its own share where the kind
 * supports that. NaN: no memory, or more than 256 experts a token. */
double hit_rate(const struct routes *r, enum sched_cache_kind kind, uint32_t cached);
/* The same for a cache whose experts are random and never change. */
double hit_rate_fixed(const struct routes *r, uint32_t cached, uint64_t seed);

#endif
