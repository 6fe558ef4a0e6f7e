/* How often a cache has what a layer activates: demand loading of whole experts, in the order of the tokens, nothing else. What
 * the papers' tables of cache policies count. */
#ifndef MOED_REPLAY_HIT_RATE_H
#define MOED_REPLAY_HIT_RATE_H

#include "sched/cache.h"

/* The choices of tokens one after the other. */
struct routes {
    uint32_t n_tokens, n_layers, n_experts, n_used;
    const uint16_t *selected; /* [n_tokens][n_layers][n_used] */
};

/* Of (token, layer, expert) triples, those whose expert was there when its layer was routed; the caches are empty at first.
 * cached: experts a layer. Every layer has its own share where the kind takes that. NaN: no memory, or
 * more than 256 experts a token. */
double hit_rate(const struct routes *r, enum sched_cache_kind kind, uint32_t cached);
/* The same where each layer has random experts that never change. */
double hit_rate_fixed(const struct routes *r, uint32_t cached, uint64_t seed);

#endif
