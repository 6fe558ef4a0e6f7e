/* The routed experts of a layer: planned from what the device holds and what things cost, computed on the device, sent to the CPU
 * executor through shared memory, and taken back when it dies or stalls. The result does not depend, to the bit, on who
 * computed what. */
#ifndef MOED_WORKER_EXPERTS_H
#define MOED_WORKER_EXPERTS_H

#include "base/error.h"
#include "calibration/calibration.h"
#include "device/device.h"
#include "exec/exec.h"
#include "memory/memory_client.h"
#include "metrics/metrics.h"
#include "prediction.h"
#include "sched/assign.h"
#include "sched/copies.h"

/* Larger batches activate most of a layer: predicting is of no use. */
#define PREDICT_MAX_TOKENS 32

struct cuda_device;
struct dense_values;
struct experts;

struct experts_counters {
    struct counter *sent, *local, *taken_back, *wait_ns;
    struct counter *local_ns, *local_bytes; /* what `local` took, and the weights that it read */
    /* Of a device with memory of its own, else NULL: segments computed there from what was resident, after a load,
     * on the CPU; loads that did not come in time; layers computed in one call when the load was there; time to plan. */
    struct counter *resident, *loaded, *on_cpu, *loads_taken_back, *load_wait_ns, *at_once;
    /* Of a CUDA device: layers that it ran by itself; tries that missed an expert; layers that were queued behind a miss;
     * layers that were queued as a graph. */
    struct counter *alone, *alone_missed, *alone_in_vain, *replayed;
    struct counter *awaited; /* of a CUDA device: of the loaded ones: queued while they were on their way, for the device waits by itself */
    struct counter *declined; /* predicted, not asked for: not worth the copy */
    struct counter *without;  /* steps in which nothing was predicted: it did not pay, or that was tried */
    /* Where not all experts are in host memory, else NULL: activated experts that were there (or whole on the device), and
     * that had to be read; time waited for that. */
    struct counter *found_in_memory, *found_on_disk, *disk_wait_decode_ns, *disk_wait_prefill_ns;
    struct histogram *plan_seconds;
    /* Of a layer, in the engine's thread; one step in so many is timed. Exposed: of layers in which it waited for nobody
     * afterwards. */
    struct histogram *predict_seconds;
    struct counter *predict_exposed_ns;
    struct counter *device_ns, *cpu_ns; /* computing on either side */
    /* Layers whose time was predicted: what they took, the prediction, and by how much it was wrong. */
    struct counter *layers, *layer_ns, *predicted_ns, *wrong_ns;
};

struct experts_options {
    uint32_t max_tokens; /* of one layer call */
    unsigned spin_us;
    struct device_spec device;
    struct cuda_device *cuda; /* NULL: not on such a device */
    bool cpuexec;             /* there may be one; else the CPU's part of every layer is ours */
    bool rows_stay;           /* there, for the dense part is computed there too */
    enum sched_assigner assigner;
    enum sched_predictor predictor;
    enum sched_prefetcher prefetcher; /* memd's, for how many it is told of (sched_prefetch_most) */
    bool fine_tune;                                 /* as predict_shape's */
    struct prediction_counters prediction_counters; /* where the device has memory of its own */
    /* NULL, or called once (by the engine's thread): the device has failed, nothing is computed any more. */
    void (*device_lost)(void *arg, const struct error *e);
    /* Ends the process, where device_compute_awaits: the device's stream waits for what nobody brings any more, and whoever waited
     * for the stream would do so for ever. */
    void (*device_hangs)(void *arg, const struct error *e);
    void *device_lost_arg;
};

/* Borrows all. own: computes the device's share, and where no executor does. */
enum error_code experts_new(const char *run, const struct memory_client *memory, struct exec *own,
                            const struct experts_options *options,
                            const struct experts_counters *counters, struct experts **out,
                            struct error *e);
void experts_free(struct experts *x); /* takes NULL */

/* Wait at start until an executor is attached, at most timeout_ms. Going on without is allowed. */
bool experts_wait(struct experts *x, int timeout_ms);

/* Where the device has memory of its own: what things cost, measured anew where `anew` or nothing was measured before
 * (calibration.h). Needed before the first layer, and before the engine's thread. */
enum error_code experts_calibrate(struct experts *x, const char *device_text, bool anew,
                                  struct error *e);
/* NULL where the device has none. Any thread. */
const struct calibration *experts_calibration(const struct experts *x);
/* By how much layers have corrected the calibration since: real by measured, moving averages. Any thread. */
/* Seconds of a step outside of its layers' experts, a moving average; 0: not known. */
double experts_outside_s(const struct experts *x);
struct experts_corrections {
    double device, cpu, slowdown, link;
};
struct experts_corrections experts_corrections(const struct experts *x);

/* What is known of copying ahead (copy_trial.h). Any thread. */
struct experts_ahead {
    bool tried; /* else the rest is not known */
    bool used;
    double saves; /* of a step without, as a share; below 0: it costs that */
};
struct experts_ahead experts_ahead(const struct experts *x);

/* memd has gone, or we end: whoever waits for experts to be read, or copied, gives up. Any thread. */
void experts_stop(struct experts *x);

/* Another assigner, from the next layer on. Any thread. */
void experts_set_assigner(struct experts *x, enum sched_assigner assigner);
void experts_set_prefetcher(struct experts *x, enum sched_prefetcher prefetcher);

/* Another predictor, from the next layer on. One thread at a time, any. */
enum error_code experts_set_predictor(struct experts *x, enum sched_predictor predictor,
                                      struct error *e);
const struct prediction *experts_prediction(const struct experts *x); /* NULL: nothing to copy */

/* As prediction.h says. look: before a layer. The others after begin; show also before a step's first layer. seen.step is not needed. */
void experts_look(struct experts *x, uint32_t layer);
/* Between two steps, where there is nothing to compute: what memd does with the device's memory is followed. Where
 * experts_share_memory: the device has memory of its own. */
void experts_follow(struct experts *x);
bool experts_share_memory(const struct experts *x);
void experts_show(struct experts *x, struct predict_seen seen);
bool experts_reads_scores(const struct experts *x); /* predict_seen.scores of experts_predict_guess */
bool experts_reads_embedding(const struct experts *x, uint32_t n_tokens); /* else nobody looks at it */
bool experts_predict_gate(struct experts *x, struct predict_seen seen, uint32_t i,
                          struct predict_target *target, const float **input);
void experts_predict_guess(struct experts *x, struct predict_seen seen,
                           const struct predict_target *target, const uint32_t *guessed);
void experts_predict_end(struct experts *x); /* of a layer's, for what they took */

/* Start layer's experts for n_tokens rows of values, float [n_tokens][d_model], fetched; selected[t * n_used + rank] is an
 * expert of token t. Then finish: waits; then the row of token t and rank k is experts_row(x, t, k), [d_model], valid until the
 * next begin. With rows_stay it is row experts_row_of(x)[t * n_used + k] of experts_device_rows(x), on the device, for what is
 * called later on its stream. values stays valid in between. one_request: as forward_run's. */
void experts_begin(struct experts *x, uint32_t layer, const struct dense_values *values,
                   uint32_t n_tokens, const uint32_t *selected, bool one_request);
/* What the caller has to do for a layer while its experts are computed: called once, by experts_finish, when what is resident on
 * the device is computed, or queued on a device that computes by itself, and before anything is waited for. */
struct experts_meanwhile {
    enum error_code (*run)(void *arg, struct error *e); /* an error: the device has failed */
    void *arg;
};
/* meanwhile may be NULL.
 * ERROR_IO, ERROR_TIMEOUT, ERROR_UNAVAILABLE (experts_stop): experts that are not in host memory cannot be read; there are no rows.
 * ERROR_UNAVAILABLE too where the device has failed. */
enum error_code experts_finish(struct experts *x, const struct experts_meanwhile *meanwhile, struct error *e);
const float *experts_row(const struct experts *x, uint32_t token, uint32_t rank);
const float *experts_device_rows(const struct experts *x);
const uint32_t *experts_row_of(const struct experts *x);
/* The same on the device, for the layers of experts_alone.h; NULL: it is in host memory. */
const uint32_t *experts_own_row_of(const struct experts *x);

/* device_cache_kv_limit and device_cache_tell_kv; UINT64_MAX, and nothing, where the device has no memory of its own. */
uint64_t experts_kv_limit(const struct experts *x);
void experts_tell_kv(struct experts *x, uint64_t bytes);

/* The device has failed elsewhere, as e says: what experts_finish does where it meets that. Returns e's code. */
enum error_code experts_lose_device(struct experts *x, struct error *e);

#endif
