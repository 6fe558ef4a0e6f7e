/* The worker's side of the host tier (ipc/host_tier.h), which exists if not all experts fit into
 * host memory. It finds experts in memory, and requests others from memd, which reads them from the
 * model file. Threads: only the engine's, except host_experts_wake. */
#ifndef MOED_WORKER_LINKS_HOST_EXPERTS_H
#define MOED_WORKER_LINKS_HOST_EXPERTS_H

#include "cache_link.h"

struct host_experts;

/* Borrows both; memory has a tier. NULL: no memory. */
struct host_experts *host_experts_new(const struct memory_client *memory, struct cache_link *link);
void host_experts_free(struct host_experts *h); /* takes NULL */

/* Begins and ends an epoch: experts that are found within it stay where they are. Not nested. */
void host_experts_enter(struct host_experts *h, uint64_t step, uint32_t layer);
void host_experts_leave(struct host_experts *h);
/* False: the expert is not in memory. Outside of an epoch the answer is only a hint. */
bool host_experts_find(const struct host_experts *h, uint32_t layer, uint32_t expert,
                       uint32_t *slot);
const uint8_t *host_experts_slab(const struct host_experts *h, uint32_t slot);

/* As device_cache_routed and device_cache_predicted. */
void host_experts_routed(struct host_experts *h, const struct cache_turn *turn,
                         const struct cache_hint *experts, uint32_t n);
void host_experts_predicted(struct host_experts *h, uint64_t step, uint32_t layer,
                            const struct cache_hint *experts, uint32_t n);
/* fetch requests experts and returns how many requests the ring took. count counts off the oldest n
 * of them, in this order, when they have been used or are no longer wanted. */
uint32_t host_experts_fetch(struct host_experts *h, uint64_t step, uint32_t layer,
                            const struct cache_hint *experts, uint32_t n);
void host_experts_count(struct host_experts *h, uint32_t n);
/* Rings memd: call it after routed, predicted and fetch. */
void host_experts_notify(struct host_experts *h);

/* How often reading this expert has failed; what changes while memd reads any
 * expert. */
uint32_t host_experts_failures(const struct host_experts *h, uint32_t layer, uint32_t expert);
uint64_t host_experts_progress(const struct host_experts *h);
/* Outside of an epoch: waits until ready(arg) or timeout_ms. ready is called again after each
 * arrival and failure, and after host_experts_wake. */
void host_experts_wait(struct host_experts *h, bool (*ready)(void *arg), void *arg,
                       struct spinner *spinner, int timeout_ms);
/* Wakes host_experts_wait. Any thread. */
void host_experts_wake(struct host_experts *h);

#endif
