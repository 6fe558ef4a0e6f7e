/* How much of a model lies in host memory when it is given less than all of it takes (--ram SIZE): the dense weights
 * always, and slots of an expert each with what is left. Made from the plan of the pool, before anything is allocated. */
#ifndef MOED_MODEL_TIER_PLAN_H
#define MOED_MODEL_TIER_PLAN_H

#include "model/pool_plan.h"

/* Experts that are read at a time. */
enum { TIER_READERS = 8 };

struct tier_plan {
    uint32_t n_slots;    /* 0: everything is in the pool, there is no tier */
    uint64_t slot_bytes; /* the largest slab of any layer, in whole pages */
    uint64_t bytes;      /* of the tier's shared region (ipc/host_tier.h) */
    uint64_t read_bytes; /* beside it: what is being read, an expert a reader */
};

/* ram: bytes with K, M, G, T, Ki, Mi, Gi, or a share of the model's weights, as 50%; NULL: all of it. Pool and
 * region together take at most so many. ERROR_USAGE where ram is no such size or too little, naming the least that would
 * do: the larger of 8 experts and twice what a token activates in a layer. plan is not changed: where there
 * are slots, pool_plan_keep_dense is the caller's. */
enum error_code tier_plan_new(const struct pool_plan *plan, const char *ram, struct tier_plan *out,
                              struct error *e);

#endif
