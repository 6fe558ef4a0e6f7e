/* Snapshots of the states of recurrent layers, kept beside the prefix cache. Keys and values of a
 * prefix can be cut at any position; a state cannot. A request of a model with such layers begins
 * with what the prefix cache has only up to a position at which there is a snapshot, else with its
 * first token.
 *
 * The snapshots are this process's own: they end with it. The one whose loss costs least makes
 * place for a new one: what must be computed again from the next shorter one of the same tokens,
 * discounted by how long ago its conversation went on. So one conversation's many steps drop their
 * own snapshots, which stand close together, rather than the one at the end of a system prompt.
 * Those of passing requests (prefix_cache.h) go first, until another request has found them.
 *
 * Threads: only the engine's. Nothing here allocates after state_snapshots_new. */
#ifndef MOED_WORKER_KV_STATE_SNAPSHOTS_H
#define MOED_WORKER_KV_STATE_SNAPSHOTS_H

#include "worker/kv/prefix_cache.h"

struct state_snapshots;

struct state_snapshot {
    uint32_t position; /* tokens [0, position) made the state */
    uint8_t *state;
};

struct state_snapshots_options {
    uint32_t count, context; /* snapshots; the most tokens of one */
    uint64_t state_bytes;
    bool exact; /* see kv_kind_of */
};

enum error_code state_snapshots_new(const struct state_snapshots_options *options,
                                    struct state_snapshots **out, struct error *e);
void state_snapshots_free(struct state_snapshots *s); /* takes NULL */

/* The longest snapshot of a part of the prefix, of the same salt, that has the bits which the
 * prefix's prompt would give it (enum kv_kind). NULL: there is none. Valid until the next reserve.
 * passing: for such a request. */
const struct state_snapshot *state_snapshots_find(struct state_snapshots *s,
                                                  const struct kv_prefix *prefix, bool passing);
/* The position of that one, which does not count as used; 0: there is none. */
uint32_t state_snapshots_longest(const struct state_snapshots *s, const struct kv_prefix *prefix);
/* A snapshot for the caller to write the state after the prefix, of one token or more; the caller
 * then calls keep or drop. NULL: it is there already, or all are reserved. */
struct state_snapshot *state_snapshots_reserve(struct state_snapshots *s,
                                               const struct kv_prefix *prefix, bool passing);
void state_snapshots_keep(struct state_snapshots *s, struct state_snapshot *snapshot);
void state_snapshots_drop(struct state_snapshots *s, struct state_snapshot *snapshot);
/* Drops all that are not reserved. */
void state_snapshots_clear(struct state_snapshots *s);

#endif
