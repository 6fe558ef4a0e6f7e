/* The connection to the CPU executor: a region shared with it (ipc/expert_channel.h). A thread of
 * the module makes a new region whenever no executor is attached. */
#ifndef MOED_WORKER_LINKS_EXPERT_LINK_H
#define MOED_WORKER_LINKS_EXPERT_LINK_H

#include "base/error.h"
#include "ipc/expert_channel.h"
#include "memory/memory_client.h"

struct expert_link;

/* Borrows memory. max_tokens: of one layer call. */
enum error_code expert_link_new(const char *run, const struct memory_client *memory,
                                uint32_t max_tokens, struct expert_link **out, struct error *e);
void expert_link_free(struct expert_link *l); /* takes NULL */
/* Waits at start until an executor is attached, at most timeout_ms. False: none is. */
bool expert_link_wait(struct expert_link *l, int timeout_ms);

/* The functions below: only the engine's thread. */

/* The channel to use for the next job; NULL: no executor is attached. Valid until the next call of
 * this function or of expert_link_abandon. */
struct expert_channel *expert_link_channel(struct expert_link *l);
/* Gives the channel up after a failure: it is not used again, even if its executor still lives. */
void expert_link_abandon(struct expert_link *l);
/* Becomes true when the executor of the present channel has gone; the doorbell of its completions
 * is then rung. */
const _Atomic bool *expert_link_dead(const struct expert_link *l);

#endif
