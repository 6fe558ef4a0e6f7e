/* The policy of moed-worker: asks memd for it, follows its changes, and reports its results since
 * it was chosen; see worker.h. Reply messages are static, because the daemon handles one request at
 * a time. */
#include "worker.h"

#include "base/clock.h"
#include "base/log.h"
#include "daemon/control.h"
#include "sched/policy.h"

#include <math.h>

static enum error_code ask_policy(const struct worker *w, enum sched_assigner *assigner,
                                  enum sched_predictor *predictor,
                                  enum sched_prefetcher *prefetcher, struct error *e)
{
    Moed__V1__PolicyRequest policy = MOED__V1__POLICY_REQUEST__INIT;
    Moed__V1__Request request = MOED__V1__REQUEST__INIT;
    Moed__V1__Reply *reply;
    request.body_case = MOED__V1__REQUEST__BODY_POLICY;
    request.policy = &policy;
    enum error_code code = control_call_peer(w->daemon.run, "memd", &request,
                                             MOED__V1__REPLY__BODY_POLICY, 5000, &reply, e);
    if (code)
        return code;
    if (!sched_predictor_find(reply->policy->predictor, predictor))
        code = error_set(e, ERROR_PROTOCOL, "memd's policy has an unknown predictor '%.40s'",
                         reply->policy->predictor);
    if (!sched_assigner_find(reply->policy->assigner, assigner))
        code = error_set(e, ERROR_PROTOCOL, "memd's policy has an unknown assigner '%.40s'",
                         reply->policy->assigner);
    if (reply->policy->prefetcher[0] && /* empty: there is no cache */
        !sched_prefetcher_find(reply->policy->prefetcher, prefetcher))
        code = error_set(e, ERROR_PROTOCOL, "memd's policy has an unknown prefetcher '%.40s'",
                         reply->policy->prefetcher);
    moed__v1__reply__free_unpacked(reply, NULL);
    return code;
}

enum error_code worker_ask_policy(struct worker *w, struct error *e)
{
    return ask_policy(w, &w->assigner, &w->predictor, &w->prefetcher, e);
}

static uint64_t device_only_ns(const struct experts_counters *k)
{
    return k->device_only_ns ? counter_read(k->device_only_ns) : 0;
}

/* The counters that `moed policy` shows for the time of one policy. */
static struct worker_since count_experts(const struct worker *w)
{
    /* device-only layers are not among `layers` */
    const struct experts_counters *k = &w->counters;
    struct worker_since s = {0};
    uint64_t only_ns = device_only_ns(k); /* before device_ns, which contains it */
    if (w->memory.arena_bytes)
        s = (struct worker_since){.resident = counter_read(k->resident),
                                  .loaded = counter_read(k->loaded),
                                  .on_cpu = counter_read(k->on_cpu),
                                  .layers = counter_read(k->layers),
                                  .layer_ns = counter_read(k->layer_ns),
                                  .predicted_ns = counter_read(k->predicted_ns),
                                  .wrong_ns = counter_read(k->wrong_ns),
                                  .plan_ns = (uint64_t)(histogram_sum(k->plan_seconds) * 1e9),
                                  .device_ns = counter_read(k->device_ns) - only_ns,
                                  .cpu_ns = counter_read(k->cpu_ns)};
    return s;
}

/* `moed policy` changes the policy in memd first. */
static enum error_code follow_policy(struct worker *w, struct error *e)
{
    enum sched_assigner assigner;
    enum sched_predictor predictor;
    enum sched_prefetcher prefetcher = w->prefetcher;
    enum error_code code = ask_policy(w, &assigner, &predictor, &prefetcher, e);
    if (!code && predictor != w->predictor) /* an unchanged predictor keeps its state */
        code = experts_set_predictor(w->experts, predictor, e);
    if (code)
        return code;
    experts_set_assigner(w->experts, assigner);
    experts_set_prefetcher(w->experts, prefetcher);
    w->assigner = assigner;
    w->prefetcher = prefetcher;
    w->predictor = predictor;
    w->since = count_experts(w);
    w->since_ns = clock_ns();
    log_info("assigner %s, predictor %s", sched_assigner_name(w->assigner),
             sched_predictor_name(w->predictor));
    return ERROR_OK;
}

/* The predictor's score for each layer since it was chosen. */
static void fill_predictions(const struct worker *w, Moed__V1__PolicyReply *policy)
{
    enum { MOST = 1024 };
    static uint64_t predictions[MOST], right[MOST];
    uint32_t n_layers = w->memory.map.params.n_layers;
    if (w->predictor == PREDICT_NONE)
        return;
    n_layers = n_layers < MOST ? n_layers : MOST;
    for (uint32_t i = 0; i < n_layers; i++) {
        struct predict_hits hits = prediction_score(experts_prediction(w->experts), i);
        predictions[i] = hits.predictions;
        right[i] = hits.right;
    }
    policy->n_predictions = policy->n_predictions_right = n_layers;
    policy->predictions = predictions;
    policy->predictions_right = right;
    policy->predict_shown = counter_read(w->prediction.shown);
    policy->predict_dropped = counter_read(w->prediction.dropped);
    policy->predict_in_time = counter_read(w->prediction.in_time);
    policy->predict_late = counter_read(w->prediction.late);
}

static void fill_computed(const struct worker *w, Moed__V1__PolicyReply *policy)
{
    struct worker_since now = count_experts(w), then = w->since;
    policy->since_ns = clock_ns() - (w->since_ns ? w->since_ns : w->daemon.started_ns);
    policy->segments_resident = now.resident - then.resident;
    policy->segments_loaded = now.loaded - then.loaded;
    policy->segments_cpu = now.on_cpu - then.on_cpu;
    policy->layers = now.layers - then.layers;
    policy->layer_ns = now.layer_ns - then.layer_ns;
    policy->layer_predicted_ns = now.predicted_ns - then.predicted_ns;
    policy->layer_wrong_ns = now.wrong_ns - then.wrong_ns;
    policy->plan_ns = now.plan_ns - then.plan_ns;
    policy->device_busy_ns = now.device_ns > then.device_ns ? now.device_ns - then.device_ns : 0;
    policy->cpu_busy_ns = now.cpu_ns - then.cpu_ns;
    policy->outside_ns = (uint64_t)(experts_outside_s(w->experts) * 1e9);
}

enum error_code worker_reply_policy(struct worker *w, const Moed__V1__PolicyRequest *request,
                                    Moed__V1__Reply *reply, struct error *e)
{
    static Moed__V1__PolicyReply policy;
    bool changed = request->policy[0] || request->assigner[0] || request->predictor[0] ||
                   request->cache[0] || request->budget[0] || request->prefetcher[0];
    enum error_code code = changed ? follow_policy(w, e) : ERROR_OK;
    if (code)
        return code;
    moed__v1__policy_reply__init(&policy);
    policy.device = (char *)w->device;
    policy.part = (char *)sched_assigner_name(w->assigner);
    policy.has_cache = w->memory.arena_bytes > 0;
    if (policy.has_cache) {
        struct cost_corrections now = experts_corrections(w->experts);
        if (!w->calibration.failed)
            policy.calibration = w->calibration.data;
        policy.device_correction = now.device;
        policy.cpu_correction = now.cpu;
        policy.slowdown_correction = now.slowdown;
        policy.link_correction = now.link;
        struct device_trial_result trial = experts_trial_result(w->experts);
        policy.prefetch_tried = trial.tried && !isnan(trial.prefetch_saves);
        policy.prefetching = trial.use == DEVICE_PREFETCHES;
        policy.prefetch_saves = policy.prefetch_tried ? trial.prefetch_saves : 0;
        policy.loads_tried = trial.tried && !isnan(trial.copies_save);
        policy.loading = trial.use < DEVICE_KEEPS;
        policy.copies_save = policy.loads_tried ? trial.copies_save : 0;
        policy.device_tried = trial.tried && !isnan(trial.device_saves);
        policy.device_computes = trial.use != DEVICE_UNUSED;
        policy.device_saves = policy.device_tried ? trial.device_saves : 0;
        fill_computed(w, &policy);
    }
    policy.has_tier = w->memory.tier.slots != NULL;
    if (policy.has_cache || policy.has_tier)
        fill_predictions(w, &policy);
    if (policy.has_tier) {
        policy.experts_in_memory = counter_read(w->counters.found_in_memory);
        policy.experts_on_disk = counter_read(w->counters.found_on_disk);
        policy.decode_ns = engine_status(w->engine).decode_ns;
        policy.disk_wait_decode_ns = counter_read(w->counters.disk_wait_decode_ns);
    }
    reply->body_case = MOED__V1__REPLY__BODY_POLICY;
    reply->policy = &policy;
    return ERROR_OK;
}
