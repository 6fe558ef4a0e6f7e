/* The KV pool of a deployment: memd makes its shared region once, sized by --kv-cache, and lends it
 * to the worker, which keeps conversations in it (ipc/kv_pool.h). memd only counts. */
#ifndef MOED_MEMD_HOST_CONVERSATIONS_H
#define MOED_MEMD_HOST_CONVERSATIONS_H

#include "base/error.h"
#include "ipc/kv_pool.h"
#include "ipc/shm.h"
#include "metrics/metrics.h"
#include "model/kv_type.h"

struct conversations {
    struct shm region; /* base NULL: not made */
    struct kv_pool pool;
};

struct conversations_options {
    const struct model_params *params;
    enum tensor_type type; /* of keys and values */
    const char *size;      /* "6G", "25%" of the memory that is free now; NULL: half of it */
    uint64_t generation;
};

/* The region takes memory as conversations fill it. Call it after the weights have theirs.
 * ERROR_USAGE: the size is no size, or holds no page. ERROR_MEMORY. */
enum error_code conversations_make(struct conversations *c,
                                   const struct conversations_options *options, struct error *e);
void conversations_close(struct conversations *c); /* a zeroed one: no effect */

void conversations_register(struct conversations *c, struct metrics *m);

#endif
