/* The KV pool of a deployment: memd makes its shared region once, sized by --kv-cache, and lends it
 * to the worker, which keeps conversations in it (ipc/kv_pool.h). memd counts, and with --kv-dir
 * copies them to a file (kv_file.h). */
#ifndef MOED_MEMD_HOST_CONVERSATIONS_H
#define MOED_MEMD_HOST_CONVERSATIONS_H

#include "base/error.h"
#include "gguf/gguf.h"
#include "exec/topology.h"
#include "ipc/kv_pool.h"
#include "memd/host/kv_saver.h"
#include "ipc/shm.h"
#include "metrics/metrics.h"
#include "model/kv_type.h"

struct conversations {
    struct shm region; /* base NULL: not made */
    struct kv_pool pool;
    struct kv_file file; /* not open: conversations end with memd */
    struct kv_saver *saver;
};

struct conversations_options {
    const struct model_params *params;
    enum tensor_type type; /* of keys and values */
    const char *size;      /* "6G", "25%" of the memory that is free now; NULL: half of it */
    uint64_t margin;       /* of the free memory, for the other processes */
    uint64_t promised;     /* of the free memory, to other KV caches (daemon/kv_promises.h): no part
                              of what is shared; a `size` in bytes ignores it */
    uint64_t generation;
    const char *dir;         /* where to keep them in a file; NULL: nowhere */
    const char *dir_size;    /* "20G", "25%" of the disk space that is free; NULL: twice `size`, at
                                most half of that space */
    const struct gguf *gguf; /* the model's files */
    const struct topology *topology; /* spreads the region over its memory nodes; NULL: does not */
    uint32_t parallel; /* requests at once, which may have states of recurrent layers */
    uint32_t batch;    /* tokens of prompts that a worker computes at once */
};

/* A file that cannot be used costs a warning. The region takes memory as conversations fill it.
 * Call it after the weights have theirs. ERROR_USAGE: the size is no size, or holds no page.
 * ERROR_MEMORY. */
enum error_code conversations_make(struct conversations *c,
                                   const struct conversations_options *options, struct error *e);
/* Saves what the file does not have yet. A zeroed one: no effect. */
void conversations_close(struct conversations *c);

/* Bytes of the region that have no pages yet. On any thread. */
uint64_t conversations_promised_bytes(const struct conversations *c);

void conversations_register(struct conversations *c, struct metrics *m);

#endif
