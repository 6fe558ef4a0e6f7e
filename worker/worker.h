/* The state of moed-worker: main.c makes it; requests.c, policy.c and health.c answer the control
 * plane from it. */
#ifndef MOED_WORKER_WORKER_H
#define MOED_WORKER_WORKER_H

#include "worker/links/cuda_device.h"
#include "worker/frontends/request_defaults.h"
#include "worker/serve/engine.h"
#include "worker/experts/experts.h"
#include "worker/forward/forward.h"
#include "worker/frontends/frontends.h"

#include "base/strbuf.h"
#include "daemon/daemon.h"
#include "device/device.h"
#include "memory/memory_client.h"
#include "metrics/recent.h"

#include <pthread.h>
#include <stdatomic.h>

struct worker {
    struct daemon daemon;
    /* options */
    const char *device, *kernels, *kv_type, *speculate;
    uint64_t number, threads, context, parallel, batch, queue, decode_share;
    double spin_us;
    uint32_t drafts;      /* what speculate says */
    uint32_t kv_requests; /* of a whole context, that a device's KV cache holds */
    bool reproducible, pin, calibrate, fine_tune, cpuexec;
    struct request_defaults defaults;
    bool exact; /* of prefix_cache_options */
    struct device_spec device_spec;
    enum sched_assigner assigner;
    enum sched_predictor predictor;
    enum sched_prefetcher prefetcher; /* memd's */
    /* what the worker owns, in the order in which start makes it */
    struct memory_client memory;
    struct watch *watch;
    struct tokenizer *tokenizer;
    char *own_template; /* the deployment's; NULL: none */
    char *chat_template, *chat_template_tools;
    const char *quantization;
    struct sampling sampling;     /* the defaults, the model's or the deployment's */
    struct token_list end_tokens; /* of the vocabulary */
    struct pool *pool;
    struct exec *exec;
    struct cuda_device cuda;
    struct cache_link cache_link; /* until the experts take it over; cuda only */
    uint64_t kv_whole_bytes;      /* of the device's whole KV cache; 0: it is in host memory */
    struct model_weights weights;
    struct dense *dense;
    struct experts_counters counters;
    struct prediction_counters prediction; /* with device memory or a host tier; else zero */
    struct experts *experts;
    _Atomic bool device_failed;
    uint64_t model_identity;         /* for clients that continue an answer at another worker */
    bool draining, has_drain_thread; /* the thread "signals" sets these two */
    pthread_t drain_thread;          /* it uses the engine */
    _Atomic bool drain_cancelled;    /* the worker stops before all requests have ended */
    struct strbuf calibration;       /* as text; empty where the device has no memory of its own */
    struct recent *recent;           /* NULL: neither device memory nor a host tier */
    /* Counters when the current policy was chosen; 0 where the device has no memory of its own. */
    struct worker_since {
        uint64_t resident, loaded, on_cpu; /* segments */
        uint64_t layers, layer_ns, predicted_ns, wrong_ns, plan_ns, device_ns, cpu_ns;
    } since;
    uint64_t since_ns; /* when that was; 0: the counters are of this process's whole time */
    struct forward *forward;
    struct kv_pool kv_pool; /* memd's */
    struct prefix_cache *prefixes;
    struct state_snapshots *snapshots; /* NULL: the model has no recurrent layers */
    struct engine *engine;
    struct heartbeat heartbeat; /* of its thread */
    struct frontends *frontends;
    uint8_t *activity; /* of the last reply to people who watch; NULL: nobody has asked */
};

/* For struct daemon_handlers; arg: struct worker. */
enum error_code worker_handle_request(void *arg, const Moed__V1__Request *request,
                                      Moed__V1__Reply *reply, struct error *e);
void worker_fill_health(void *arg, Moed__V1__HealthReply *health);

/* Makes w->recent, the counters of the last seconds for health and the log. After the engine is
 * made, before it starts. */
enum error_code worker_count_recent(struct worker *w, struct error *e);

/* Asks memd for the worker's parts of the policy, at start. memd keeps the policy, so that it
 * outlives a worker. */
enum error_code worker_ask_policy(struct worker *w, struct error *e);
/* The conversations that the KV cache holds. */
enum error_code worker_reply_cache(struct worker *w, const Moed__V1__CacheRequest *request,
                                   Moed__V1__Reply *reply, struct error *e);
enum error_code worker_reply_policy(struct worker *w, const Moed__V1__PolicyRequest *request,
                                    Moed__V1__Reply *reply, struct error *e);

/* confine.c. The first before the worker has a second thread, with its options; the second when it
 * is about to serve. */
void worker_confine_files(const struct worker *w);
void worker_confine_calls(const struct worker *w);

#endif
