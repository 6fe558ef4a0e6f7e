/* Which model moed-models starts or stops next. Pure: no I/O, no clock.
 *
 *     off --(start)--> starting --> up --(stop)--> stopping --> off
 *                          '------> failed --(a request, after MODEL_RETRY_NS)--> starting
 *
 * A model that somebody waits for is started if it fits in the memory that is free, beside the most
 * models that may be up. Else the model that has been idle for longest makes space. A busy model is
 * never stopped; the waiting one waits for it. A model that is idle for its time is stopped. One
 * action at a time: what it did to the free memory is seen before the next. */
#ifndef MOED_DEPLOY_MODELS_DECIDE_H
#define MOED_DEPLOY_MODELS_DECIDE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum model_state { MODEL_OFF, MODEL_STARTING, MODEL_UP, MODEL_STOPPING, MODEL_FAILED };

#define MODEL_RETRY_NS  5000000000ull  /* after a failure */
#define MODEL_WANTED_NS 10000000000ull /* a request that is not repeated for so long is gone */
/* A model that was asked for is not idle before: the request may still be on its way to the worker.
 */
#define MODEL_GRACE_NS 3000000000ull
#define MODEL_FOREVER  UINT64_MAX /* of keep_ns */

struct model_facts {
    enum model_state state;
    bool own;            /* moed-models started it, and it is neither off nor failed */
    bool on_gpu;         /* it is up and has a GPU's memory */
    bool busy;           /* it is up and computes */
    bool broken;         /* its supervisor has given it up */
    bool drop;           /* somebody wants it stopped */
    uint64_t need_bytes; /* of host memory, without the KV cache */
    uint64_t kv_least_bytes, kv_most_bytes; /* of the KV cache that it is started with */
    uint64_t kv_bytes;                      /* of the KV cache that it has; 0: it is not up */
    uint64_t wanted_ns;                     /* the last request for it; 0: none */
    uint64_t waits_ns;                      /* since when somebody waits for it; 0: nobody does */
    uint64_t used_ns;                       /* when it was busy last */
    uint64_t keep_ns;                       /* how long it stays up idle */
    uint64_t failed_ns;
};

struct models_limits {
    uint64_t now_ns;
    uint64_t available_bytes; /* free on the machine, and promised to no KV cache */
    uint64_t budget_bytes;    /* of all own models together; UINT64_MAX: no limit */
    unsigned most;            /* own models that are up; 0: no limit */
};

enum action_kind {
    ACTION_NONE,
    ACTION_START,
    ACTION_STOP,
    ACTION_REFUSE, /* it can never fit: it fails */
};

struct action {
    enum action_kind kind;
    size_t model;
};

struct action models_decide(const struct model_facts *models, size_t count,
                            const struct models_limits *limits);

/* The KV cache of a model that is started: half of what its weights leave of the memory that it may
 * take, between its least and its most. */
uint64_t models_kv_bytes(const struct model_facts *models, size_t count, size_t model,
                         const struct models_limits *limits);

/* Somebody waits for the model now. */
bool model_is_wanted(const struct model_facts *m, uint64_t now_ns);

#endif
