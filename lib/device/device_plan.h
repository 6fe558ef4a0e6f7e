/* Plans how a device's memory is divided (device_share.h), before anything is allocated: what its
 * users want, for how many tokens, and what does not fit. */
#ifndef MOED_DEVICE_DEVICE_PLAN_H
#define MOED_DEVICE_DEVICE_PLAN_H

#include "device/device_share.h"
#include "model/pool_map.h"

struct device_plan_options {
    const struct device_spec *device;
    uint32_t workers;           /* that share the device; 0: one */
    uint32_t parallel, context; /* a worker's; context 0: its default */
    /* For how many requests of a whole context the KV cache has memory. 0: the most of
     * DEFAULT_KV_REQUESTS, half and a quarter of them, next to which all experts fit, or which
     * takes at most a quarter of what the KV cache and the experts share; at least one. Most
     * requests are shorter, so more of them run in it; one that finds no page waits. */
    uint32_t kv_requests;
    uint32_t batch; /* 0: by memory (batch_plan.h) */
    enum tensor_type kv_type;
    bool reproducible; /* the worker uses no cuBLAS */
};

/* Plans the device's memory, and logs the plan of a device that is not emulated. Where other
 * processes are about to leave memory that would change the plan, it waits (device_link_await).
 * map: needs no weights yet. ERROR_USAGE: the device is too small, or the arena too small for a
 * segment; ERROR_MEMORY: others use the device at present. The text names what does not fit and the
 * options to lower. */
enum error_code device_plan_new(struct device_link *link, const struct pool_map *map,
                                const struct device_plan_options *options, struct device_plan *out,
                                struct error *e);

/* What device_plan_new would plan if the device stayed as it is: neither waits nor logs. For
 * commands that show or choose a device. A device with a module. */
enum error_code device_plan_look(const struct device_module *module,
                                 const struct device_facts *facts, const struct pool_map *map,
                                 const struct device_plan_options *options, struct device_plan *out,
                                 struct error *e);

#endif
