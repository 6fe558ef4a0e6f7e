/* The worker's side of the host tier (ipc/host_tier.h), where not all experts are in memory: which are there, where they lie,
 * asking memd to read others from the model file. One thread, the engine's. */
#ifndef MOED_WORKER_HOST_EXPERTS_H
#define MOED_WORKER_HOST_EXPERTS_H

#include "cache_link.h"

struct host_experts;

/* Borrows both; memory has a tier. NULL: no memory. */
struct host_experts *host_experts_new(const struct memory_client *memory, struct cache_link *link);
void host_experts_free(struct host_experts *h); /* takes NULL */

/* What is found between enter and leave stays where it is. Not nested. */
void host_experts_enter(struct host_experts *h, uint64_t step, uint32_t layer);
void host_experts_leave(struct host_experts *h);
/* False: it is not in memory. Outside of enter and leave only a hint. */
bool host_experts_find(const struct host_experts *h, uint32_t layer, uint32_t expert,
                       uint32_t *slot);
const uint8_t *host_experts_slab(const struct host_experts *h, uint32_t slot);

/* As device_cache_routed and device_cache_predicted. */
void host_experts_routed(struct host_experts *h, uint64_t step, uint32_t layer,
                         const struct cache_mention *experts, uint32_t n);
void host_experts_predicted(struct host_experts *h, uint64_t step, uint32_t layer,
                            const struct cache_mention *experts, uint32_t n);
/* Ask for experts; returns how many could be said. They are counted off in this order, when they have been used or are no
 * longer wanted. */
uint32_t host_experts_fetch(struct host_experts *h, uint64_t step, uint32_t layer,
                            const struct cache_mention *experts, uint32_t n);
void host_experts_count(struct host_experts *h, uint32_t n);
/* Ring memd after routed, predicted and fetch. */
void host_experts_notify(struct host_experts *h);

/* How often reading this expert has failed so far; how many reads of any have ended. */
uint32_t host_experts_failures(const struct host_experts *h, uint32_t layer, uint32_t expert);
uint64_t host_experts_reads(const struct host_experts *h);
/* Outside: until ready(arg), looked at again when something has arrived or failed, or timeout_ms. */
void host_experts_wait(struct host_experts *h, bool (*ready)(void *arg), void *arg,
                       unsigned spin_us, int timeout_ms);
/* Any thread: ready is to be looked at again. */
void host_experts_wake(struct host_experts *h);

#endif
