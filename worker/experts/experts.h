/* The routed experts of a layer: planned from what the device holds and from the costs, computed on
 * the device and by cpuexec over shared memory, and reclaimed when cpuexec dies or stalls. The
 * result is the same to the bit, wherever each part was computed, but for float experts in row
 * groups (exec/row_groups.h).
 *
 * The engine's thread; functions that say "any thread" may be called by others. */
#ifndef MOED_WORKER_EXPERTS_EXPERTS_H
#define MOED_WORKER_EXPERTS_EXPERTS_H

#include "base/error.h"
#include "base/heartbeat.h"
#include "calibration/calibration.h"
#include "device/device.h"
#include "exec/exec.h"
#include "memory/memory_client.h"
#include "metrics/metrics.h"
#include "worker/calibrate/cost_model.h"
#include "worker/prefetch/prefetch.h"
#include "sched/assign/assign.h"
#include "sched/prefetch/transfer_scheduler.h"

struct activity;
struct cuda_device;
struct mirrored_values;
struct experts;

struct experts_counters {
    struct counter *sent, *local, *reclaimed, *wait_ns;
    struct counter *local_ns,
        *local_bytes; /* time of `local`, and bytes of the weights that it read */
    /* Of a device with memory of its own, else NULL. Segments by where they were computed: on the
     * device where they were resident, there after a load, on the CPU. found_on_device: segments
     * that were resident when their layer was planned, wherever they were computed. */
    struct counter *resident, *loaded, *on_cpu, *found_on_device;
    /* Loads that did not arrive in time; time waited for loads; layers computed in one call after
     * their load. */
    struct counter *loads_reclaimed, *load_wait_ns, *at_once;
    /* Of a CUDA device: device-only layers; attempts that missed an expert; layers that were queued
     * behind a miss; predicted time of the experts of device-only layers, which device_ns has too;
     * layers that were queued as a graph. */
    struct counter *device_only, *device_only_missed, *device_only_discarded, *device_only_ns,
        *replayed;
    struct counter *awaited; /* of a CUDA device: loaded segments whose kernels were queued before
                                they arrived, because the device waits for them */
    struct prefetch_counters prefetch;
    /* Where not all experts are in host memory, else NULL: activated experts that were in memory
     * (or whole on the device), and that memd had to read; time waited for reads. */
    struct counter *found_in_memory, *found_on_disk, *disk_wait_decode_ns, *disk_wait_prefill_ns;
    struct histogram *plan_seconds;
    struct counter *device_ns, *cpu_ns; /* of computing on either side */
    /* Layers whose time was predicted: their number, their time, the prediction, and its error. */
    struct counter *layers, *layer_ns, *predicted_ns, *wrong_ns;
};

struct experts_options {
    uint32_t max_tokens; /* of one layer call */
    unsigned spin_us;
    struct device_spec device;
    struct cuda_device *cuda; /* NULL: no CUDA device */
    /* The channel to memd, open; taken over, on failure too. NULL: experts_new opens one. */
    const struct cache_link *link;
    bool cpuexec;   /* may run; else the worker computes the CPU's shares */
    bool rows_stay; /* on the device, which computes the dense part too */
    enum sched_assigner assigner;
    enum sched_predictor predictor;
    enum sched_prefetcher prefetcher; /* memd's; limits the hints (sched_prefetch_most) */
    bool fine_tune;                   /* as predict_shape's */
    struct prediction_counters prediction_counters; /* where the device has memory of its own */
    /* NULL, or called once by the engine's thread: the device has failed, and computes no more. */
    void (*device_lost)(void *arg, const struct error *e);
    /* Ends the process, where device_compute_awaits: the device's stream waits for a segment that
     * will not arrive, so a wait for the stream would never end. */
    void (*device_hangs)(void *arg, const struct error *e);
    void *device_lost_arg;
};

/* Borrows all. own: computes the device's share, and the CPU's where no executor does. */
enum error_code experts_new(const char *run, const struct memory_client *memory, struct exec *own,
                            const struct experts_options *options,
                            const struct experts_counters *counters, struct experts **out,
                            struct error *e);
void experts_free(struct experts *x); /* takes NULL */

/* At start: waits at most timeout_ms for an executor to attach. False: there is none yet, and the
 * worker may serve without it. */
bool experts_wait(struct experts *x, int timeout_ms);

/* Where the device has memory of its own: reads the calibration or measures it (calibrate.h).
 * Required before the first layer, and before the engine's thread starts. */
enum error_code experts_calibrate(struct experts *x, const char *device_text, bool anew,
                                  struct error *e);
/* NULL where the device has none. Any thread. */
const struct calibration *experts_calibration(const struct experts *x);
/* Corrections of the calibrated costs since then. Any thread. */
struct cost_corrections experts_corrections(const struct experts *x);
/* Seconds of a step outside of its layers' experts, a moving average; 0: not known. Any thread. */
double experts_outside_s(const struct experts *x);

/* The result of the trials of the device. Any thread. */
struct device_trial_result experts_trial_result(const struct experts *x);

/* The heartbeat of the thread that computes: a beat while a disk, however slow, reads what it waits
 * for. Borrows h. */
void experts_set_heartbeat(struct experts *x, struct heartbeat *h);

/* memd has gone, or the worker ends: waits for reads and copies of experts give up. Any thread. */
void experts_stop(struct experts *x);

/* Another assigner or prefetcher, from the next layer on. Any thread. */
void experts_set_assigner(struct experts *x, enum sched_assigner assigner);
void experts_set_prefetcher(struct experts *x, enum sched_prefetcher prefetcher);

/* Another predictor, from the next layer on. One thread at a time, any. */
enum error_code experts_set_predictor(struct experts *x, enum sched_predictor predictor,
                                      struct error *e);
const struct prediction *
experts_prediction(const struct experts *x); /* NULL: nothing to prefetch */

/* How often each expert was activated lately (activity.h). Any thread. */
struct activity *experts_activity(const struct experts *x);

/* While the engine is idle: follows memd's changes of the device's memory. False: there were none.
 * Only where experts_share_memory. */
bool experts_follow(struct experts *x);
/* Whether the device has memory of its own, which memd manages. */
bool experts_share_memory(const struct experts *x);

/* Prediction, as prediction.h. look: before a layer. The others after begin; show also before a
 * step's first layer. seen.step need not be set. */
void experts_look(struct experts *x, uint32_t layer);
void experts_show(struct experts *x, struct predict_seen seen);
/* Whether experts_predict_from_gate reads seen.scores. */
bool experts_reads_scores(const struct experts *x);
/* Whether experts_show reads the embedding of a step of n_tokens. */
bool experts_reads_embedding(const struct experts *x, uint32_t n_tokens);
bool experts_predict_gate(struct experts *x, struct predict_seen seen, uint32_t i,
                          struct predict_target *target, const float **input);
void experts_predict_from_gate(struct experts *x, struct predict_seen seen,
                               const struct predict_target *target,
                               const uint32_t *predicted_routing);
void experts_predict_end(struct experts *x); /* after the layer's last gate: ends its timing */

/* groups: rows that are a whole group of one prompt (worker/kv/prefix_cache.h), whose products of
 * float weights may round in another order than the definition's; at most one a row. Borrowed until
 * the batch is done. prompt_rows: how many are of prompts. drafts: some are drafts of tokens, so
 * the step's time says nothing about other steps with as many rows. stepwise: the prompt is
 * computed one token at a time, as if it were decoded. */
struct batch_kind {
    struct row_groups groups;
    uint32_t prompt_rows;
    bool drafts, stepwise;
};

static inline bool batch_decodes(struct batch_kind kind)
{
    return (!kind.prompt_rows || kind.stepwise) && !kind.drafts;
}

/* The input of a layer's experts: float [n_tokens][d_model], fetched. */
struct layer_input {
    const struct mirrored_values *values;
    const void *prepared; /* dense_ops.prepare's of values, quantised where experts_quantize_own */
};

/* Layers, or what comes before their plan, that dense_ops.again queued as a graph. */
void experts_count_replayed(struct experts *x, uint32_t n);

/* True: the dense part quantises the experts' input, because the device needs it there. */
bool experts_quantize_own(const struct experts *x, uint32_t layer);
/* Starts a layer's experts for n_tokens rows; selected[t * n_used + rank] is an expert of token t.
 * The input must stay valid until experts_finish returns. Then the row of token t and rank k is
 * experts_row(x, t, k), [d_model], valid until the next begin. With rows_stay it is row
 * experts_row_of(x)[t * n_used + k] of experts_device_rows(x), on the device, for later calls on
 * its stream. */
void experts_begin(struct experts *x, uint32_t layer, const struct layer_input *input,
                   uint32_t n_tokens, const uint32_t *selected, struct batch_kind kind);
/* The device is asynchronous: where nothing is timed, it computes while the caller's overlapped
 * work runs. */
bool experts_run_async(const struct experts *x);
/* The caller's work that overlaps a layer's experts. experts_finish calls it once: after the
 * resident segments are computed, or queued on an asynchronous device, and before any wait. */
struct experts_overlap {
    enum error_code (*run)(void *arg, struct error *e); /* an error: the device has failed */
    void *arg;
};
/* Waits for the layer's experts. overlap may be NULL.
 * ERROR_IO, ERROR_TIMEOUT, ERROR_UNAVAILABLE (experts_stop): experts that are not in host memory
 * cannot be read; there are no rows. Also ERROR_UNAVAILABLE: the device has failed. */
enum error_code experts_finish(struct experts *x, const struct experts_overlap *overlap,
                               struct error *e);
const float *experts_row(const struct experts *x, uint32_t token, uint32_t rank);
const float *experts_device_rows(const struct experts *x);
const uint32_t *experts_row_of(const struct experts *x);
/* The same on the device, for device-only layers; NULL: it is in host memory. */
const uint32_t *experts_own_row_of(const struct experts *x);

/* At the end of a step: counts the time that its layers waited for reads, where the step's whole
 * time is counted. prompts: the step had rows of prompts. */
void experts_count_disk_wait(struct experts *x, bool prompts);

/* As device_cache_kv_limit and device_cache_report_kv. Where the device has no memory of its own:
 * UINT64_MAX, and no effect. */
uint64_t experts_kv_limit(const struct experts *x);
void experts_report_kv(struct experts *x, uint64_t bytes);

/* The device has failed outside of experts_finish, with error e: reports that, as experts_finish
 * does. Returns e's code. */
enum error_code experts_lose_device(struct experts *x, struct error *e);

#endif
