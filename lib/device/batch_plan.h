/* How many tokens of prompts a worker on a device computes at once. A larger batch brings each
 * missing expert over the link for more tokens; its scratch takes memory that experts could have.
 */
#ifndef MOED_DEVICE_BATCH_PLAN_H
#define MOED_DEVICE_BATCH_PLAN_H

#include "device/device_share.h"
#include "device/worker_memory.h"

/* The largest batch for which all of this holds:
 *   - it has at most BATCH_ON_DEVICE tokens, and at most one request's;
 *   - the plan's parts fit;
 *   - its scratch and KV cache take at most a sixteenth of the free memory more than the least
 *     batch's;
 *   - all experts fit, if they do with the least batch.
 * p: free_bytes, driver_bytes and what its users want are set, but for scratch_bytes and kv_bytes.
 * Pure. */
uint32_t batch_plan(const struct worker_memory_needs *needs, const struct device_plan *p);

/* The batch before any memory of the device is planned: `asked`, or that of an emulated device. 0:
 * it follows from the memory, of the device or of the host. asked, context: 0: not given. */
uint32_t batch_plan_known(const struct device_spec *s, const struct model_params *p, uint32_t asked,
                          uint32_t context);

#endif
