/* The memory that a model needs, computed before anything is allocated. */
#ifndef MOED_MODEL_MEMORY_NEED_H
#define MOED_MODEL_MEMORY_NEED_H

#include "model/kv_type.h"
#include "model/pool_plan.h"

#include <stdbool.h>

/* The memory that the processes need in addition to the pool and the worker's scratch, for loading
 * buffers, the 8-bit routers and the first pages of the KV cache: a tenth of the weights, between
 * 64 and 512 MiB. */
uint64_t memory_margin_bytes(uint64_t weights_bytes);

/* The workers whose memory is planned, as their options say. */
struct memory_worker {
    /* 0: the least, as the default is made smaller (memory_batch), or planned by a device's memory
     */
    uint32_t batch;
    uint32_t parallel; /* 0: the default */
    uint32_t workers;  /* 0: one */
    unsigned threads;
    bool reproducible;
    bool cpuexec; /* it runs, with scratch for each worker */
};
/* Of the workers' scratch, and cpuexec's (model/host_scratch.h). */
uint64_t memory_scratch_bytes(const struct pool_plan *plan, const struct memory_worker *w);

/* Bytes of host memory that serving needs: the plan's pool, tier_bytes, the margin, the worker's
 * scratch, and the states of one request. */
uint64_t memory_need_bytes(const struct pool_plan *plan, uint64_t tier_bytes,
                           const struct memory_worker *w);
/* The largest --ram with which the model fits in so many bytes, as text for that option ("5.3G").
 * plan: of the whole model, which does not fit. False: no --ram is small enough. */
bool memory_need_ram(const struct pool_plan *plan, uint64_t available,
                     const struct memory_worker *w, char out[24]);
/* ERROR_MEMORY with the numbers if the plan's pool and tier_bytes do not fit together. tier_bytes:
 * of the host tier and its readers; 0: there is no tier. */
enum error_code memory_need_check(const struct pool_plan *plan, uint64_t tier_bytes,
                                  const struct memory_worker *w, struct error *e);
/* The default batch on the host: `most`, halved until its scratch takes at most a quarter of `left`
 * bytes, in whole groups of a prompt (BATCH_LEAST). Half of what is left is the KV cache's. */
uint32_t memory_batch(const struct pool_plan *plan, const struct memory_worker *w, uint32_t most,
                      uint64_t left);
/* What memory_need_bytes leaves of the available memory; 0: nothing. */
uint64_t memory_left_bytes(const struct pool_plan *plan, uint64_t tier_bytes,
                           const struct memory_worker *w);

/* Bytes of the KV cache, for a type that kv_type_check allows. */
struct memory_kv {
    uint64_t a_token;           /* of context, in the layers that attend to all of it */
    uint64_t a_token_of_window; /* in the layers with a window (model/kv_layout.h) */
    uint32_t window;            /* positions; 0: there are none */
    uint64_t window_bytes;      /* of those layers, for a running request, with its batch */
};
struct memory_kv memory_kv_bytes(const struct model_params *p, enum tensor_type type);
/* Requests at once. asked: --parallel; 0: DEFAULT_PARALLEL, or fewer where the states of recurrent
 * layers would take more than 256 MiB, but at least 4. */
uint32_t memory_parallel(const struct model_params *p, uint64_t asked);
/* Bytes of the states that the worker keeps for so many requests at once: each one's own, and
 * snapshots of them (memory_state_snapshots). 0: no layer is recurrent. */
uint64_t memory_state_bytes(const struct model_params *p, uint32_t parallel);
/* How many snapshots of states go with so many requests at once: each has two as it runs, before
 * its prompt's end and at a branch, and leaves one when it ends. */
uint32_t memory_state_snapshots(uint32_t parallel);
/* As many as these bytes hold, but at least memory_state_snapshots and at most 256, among which the
 * worker still finds one quickly. */
uint32_t memory_state_snapshots_in(const struct model_params *p, uint32_t parallel, uint64_t bytes);
/* The memory that snapshots may take: a share of the KV cache, which their conversations fill, and
 * of what is available beside the rest of it. kv_used: bytes of the KV cache that are not among
 * those available any more. */
uint64_t memory_snapshot_bytes(uint64_t kv, uint64_t kv_used, uint64_t available);

#endif
