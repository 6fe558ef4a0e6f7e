/* How many tokens of prompts a worker on a device computes at once. A larger batch brings each
 * missing expert over the link for more tokens; its scratch takes memory that experts could have.
 */
#ifndef MOED_DEVICE_BATCH_PLAN_H
#define MOED_DEVICE_BATCH_PLAN_H

#include "device/device_plan.h"
#include "device/worker_memory.h"

/* The largest batch of at most BATCH_ON_DEVICE tokens, and of one request's, with which the plan's
 * parts fit; whose scratch and KV cache take at most a sixteenth of the free memory more than the
 * least batch's; and with which as many experts fit as with that one, where those are all. p:
 * free_bytes, driver_bytes and what its users want are set, but for scratch_bytes and kv_bytes.
 * Pure. */
uint32_t batch_plan(const struct worker_memory_needs *needs, const struct device_plan *p);

#endif
