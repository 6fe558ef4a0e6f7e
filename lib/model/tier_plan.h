/* The plan of the host tier, for `--ram SIZE` below the model's size. The dense weights always lie
 * in host memory; the rest becomes slots of one expert each. Made from the pool's plan, before
 * anything is allocated. */
#ifndef MOED_MODEL_TIER_PLAN_H
#define MOED_MODEL_TIER_PLAN_H

#include "model/pool_plan.h"

/* Concurrent reads of an expert. */
enum { TIER_READERS = 8 };

struct tier_plan {
    uint32_t n_slots;    /* 0: no tier, the pool holds everything */
    uint64_t slot_bytes; /* the largest slab of any layer, in whole pages */
    uint64_t bytes;      /* of the tier's shared region (ipc/host_tier.h) */
    uint64_t read_bytes; /* in addition: the readers' buffers, one expert each */
};

/* ram: bytes with K, M, G, T, Ki, Mi, Gi, or a share of the model's weights, as 50%; NULL: the
 * whole model. It limits pool and region together. ERROR_USAGE: ram is no such size or too small;
 * the error names the minimum, the larger of 8 experts and twice what a token activates in a layer.
 * If there are slots, the caller calls pool_plan_keep_dense: this function does not change plan. */
enum error_code tier_plan_new(const struct pool_plan *plan, const char *ram, struct tier_plan *out,
                              struct error *e);

#endif
