/* moed-worker as a whole: what main.c makes, health.c and policy.c tell of, and requests.c answers from. */
#ifndef MOED_WORKER_WORKER_H
#define MOED_WORKER_WORKER_H

#include "cuda_device.h"
#include "engine.h"
#include "experts.h"
#include "forward.h"
#include "session.h"

#include "base/strbuf.h"
#include "daemon/daemon.h"
#include "device/device.h"
#include "memory/memory_client.h"
#include "metrics/recent.h"

struct worker {
    struct daemon daemon;
    /* options */
    const char *device, *kernels, *kv_type;
    uint64_t threads, context, parallel, spin_us;
    bool reproducible, pin, calibrate, fine_tune, cpuexec;
    struct device_spec device_spec;
    enum sched_assigner assigner;
    enum sched_predictor predictor;
    enum sched_prefetcher prefetcher; /* memd's */
    /* what it owns, in the order in which it is made */
    struct memory_client memory;
    struct watch *watch;
    struct tokenizer *tokenizer;
    char *chat_template;
    struct pool *pool;
    struct exec *exec;
    struct cuda_device cuda;
    struct model_weights weights;
    struct dense *dense;
    struct experts_counters counters;
    struct prediction_counters prediction; /* where the device has memory of its own */
    struct experts *experts;
    _Atomic bool device_failed;
    struct strbuf calibration; /* in words, where the device has memory of its own */
    struct recent *recent;     /* there, or where there is a host tier */
    /* Of the counters, where the device has memory of its own, when the policy was chosen that is served with; all 0: at the
     * start. */
    struct worker_since {
        uint64_t resident, loaded, on_cpu; /* segments */
        uint64_t layers, layer_ns, predicted_ns, wrong_ns, plan_ns, device_ns, cpu_ns;
    } since;
    struct forward *forward;
    struct engine *engine;
    struct sessions *sessions;
};

/* Of struct daemon_handlers; arg: struct worker. */
enum error_code worker_handle_request(void *arg, const Moed__V1__Request *request,
                                      Moed__V1__Reply *reply, struct error *e);
void worker_fill_health(void *arg, Moed__V1__HealthReply *health);

/* Counts the last seconds, for the above and for the log, into w->recent; with the engine, before it starts. */
enum error_code worker_count_recent(struct worker *w, struct error *e);

/* The policy's parts that are ours, from memd, which keeps the policy so that it outlives a worker; at start. */
enum error_code worker_ask_policy(struct worker *w, struct error *e);
enum error_code worker_reply_policy(struct worker *w, const Moed__V1__PolicyRequest *request,
                                    Moed__V1__Reply *reply, struct error *e);

#endif
