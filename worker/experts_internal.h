/* What experts.c, experts_learnt.c, experts_plan.c, experts_predict.c, experts_device.c and experts_rounds.c share: the layer under way.
 *
 * Where all experts are in host memory a layer is one round. Where they are not, a round computes those of its experts that
 * are in memory, or whole on the device; the next one those that have been read from the file meanwhile, until none is left.
 * A round's experts stand in activated[n_done, n_done + n_round). */
#ifndef MOED_WORKER_EXPERTS_INTERNAL_H
#define MOED_WORKER_EXPERTS_INTERNAL_H

#include "calibration.h"
#include "copy_trial.h"
#include "device_cache.h"
#include "device_compute.h"
#include "expert_link.h"
#include "experts.h"
#include "experts_alone.h"
#include "host_experts.h"
#include "pause.h"

#include "calibration/layer_costs.h"
#include "sched/guesses.h"
#include "sched/learned.h"

/* Waiting for so long is waiting, not looking. */
#define WAITED_NS 2000u

/* One activated expert of the layer under way. */
struct activated {
    uint32_t expert;
    uint32_t first_row, n_rows; /* of indices and rows */
    uint32_t device, load, cpu; /* segments, in this order */
    uint32_t first_out;         /* of the CPU's rows, in the channel */
    double due_s;               /* since the round began: when its loads should be there */
    struct cached_expert there; /* on the device, as the round found it */
    uint32_t slot;              /* of the host tier */
    const uint8_t *slab; /* where it lies in the host tier; NULL: in the pool, or not in memory */
    uint32_t fetch;      /* asked for as the layer's fetch of this number; 0: not */
    uint32_t failures;   /* of reading it, when that was asked for */
    bool on_host;        /* its rows are finished in host memory */
};

struct experts_alone;

/* What prediction takes of the engine's time, and what the device takes by itself, is measured in one step of so many: looking at
 * the thread's clock is a system call, and nothing else is done beside the device then. */
static inline bool is_timed_step(uint64_t step)
{
    return step % 16 == 0;
}

/* A moving average; 0: nothing yet. */
static inline void add_to_mean(double *mean, double value)
{
    *mean += (value - *mean) / (*mean > 0 ? 64 : 1);
}

#define NO_LAYER UINT32_MAX

struct experts {
    const struct memory_client *memory;
    struct sched_learned learned; /* of it, where it has that */
    struct exec *own;
    struct experts_options options;
    _Atomic int assigner, prefetcher;
    _Atomic bool stopping; /* nothing more is read for us */
    struct experts_counters counters;
    uint32_t n_used, n_experts, n_segments, d_model;
    struct expert_link *link;
    struct cache_link cache_link;   /* where there is either of the next two */
    struct device_cache *cache;     /* NULL: the device has no memory of its own */
    struct device_compute *compute; /* likewise */
    struct experts_alone *alone;    /* NULL: the host plans every layer */
    bool lost;                      /* it has failed */
    struct host_experts *host;      /* NULL: all experts are in the pool */
    struct calibration calibration; /* where there is a cache */
    struct layer_costs costs;
    /* for others to read */
    _Atomic double device_correction, cpu_correction, slowdown_correction, link_correction;
    uint64_t step;
    uint64_t *last_use;             /* [n_layers][n_experts]: step */
    struct prediction *prediction;  /* where there is a cache or a host tier */
    struct cache_mention *mentions; /* [n_experts]: what memd is told */
    struct sched_guess *guesses;    /* [n_experts]: of those that are missing */
    struct sched_ahead *ahead; /* [n_ahead]: predicted, for assigners that look ahead; prediction's */
    uint32_t n_ahead;
    uint64_t predict_ns, guessing_since_ns, guess_began_ns; /* of this layer, where it is timed */
    bool has_waited;                        /* in this layer, for the CPU or for a load */
    double *scores;         /* [n_experts]: the gate's probabilities, for caches that read them */
    float *gate;            /* [n_experts]: of one token */
    struct predicted *best; /* [n_experts] */
    /* seconds outside of the routed experts, moving averages: from a layer's end to the next one's gate, and to the next
     * step's first */
    double attention_s, head_s;
    _Atomic double outside_s; /* of a step, for others to read */
    uint64_t finished_ns;   /* the layer before; 0: none */
    uint64_t finished_copies; /* device_cache_copies then */
    uint32_t finished_layer;  /* NO_LAYER: not as the host plans it */
    struct copy_trial trial;  /* under moed's assigner, where everything is in memory */
    uint64_t step_began_ns, trial_of; /* which predictor, by its number */
    _Atomic double ahead_saves; /* as the last trial found; NAN: none has */
    _Atomic bool ahead_used;
    bool without; /* nothing is predicted nor copied ahead in this step, on trial or because that is quicker */
    double layer_s, guess_s; /* of a layer, end to end; of its guesses, where they are timed: moving averages; 0: not known */

    /* the job under way */
    struct expert_channel *channel; /* NULL: not sent */
    struct pause no_loads;          /* while it is on nothing is loaded, nor waited for */
    struct cache_pulse pulse;       /* when that began: until there is another, it goes on */
    struct pause no_cpuexec;        /* likewise, and cpuexec gets nothing to do */
    uint64_t sequence;
    bool one_request;
    uint32_t layer, n_tokens, n_activated, n_cpu;
    uint32_t n_done, n_round;
    struct activated *round;       /* &activated[n_done] */
    bool inputs_sent;              /* they lie in the channel */
    uint32_t n_fetches, n_fetched; /* asked for in this layer; the first of them that are used */
    bool *fetch_used;              /* [n_experts]: fetch i + 1 */
    const float *values;
    const float *values_there; /* on the device; NULL: they are not */
    const struct experts_meanwhile *meanwhile; /* of experts_finish, until it is called */
    uint64_t loads; /* segments that the layer has asked for */
    uint64_t begun_ns, round_begun_ns;
    uint64_t copies;             /* to the device, when the round began: device_cache_copies */
    bool device_waits;           /* for the round's one load: sched_device_waits */
    bool all_there;              /* all that is activated is on the device, as everything may be */
    uint64_t disk_wait_ns;       /* of this layer */
    double predicted_s;          /* of this layer's rounds */
    double copying_s;            /* for so long a copy was under way already */
    struct activated *activated; /* [n_experts] */
    struct sched_expert *plan;   /* [n_experts] */
    struct expert_task *tasks;   /* [n_experts] */
    bool *fetch;                 /* [n_experts]: of the device's tasks, whose rows are wanted in host memory */
    const uint8_t **places;      /* [n_experts][n_segments] */
    uint32_t *indices;           /* [max_tokens * n_used]: token of each row */
    uint32_t *row_of;            /* [max_tokens * n_used]: row of each token and rank */
    uint32_t *first_row;         /* [n_experts + 1] */
    float *rows;                 /* [max_tokens * n_used][d_model]; those of compute, where it is */
    const float **row_at;        /* [max_tokens * n_used]: where the finished row lies */
};

/* experts.c: the step that a layer belongs to that comes now, for layers come in order; the layer under way is this one, from
 * now on; what lies outside of experts: before layers that begin now, and in n layers that ended then, of which their
 * experts took so long (0: not known). */
uint64_t experts_step_of(const struct experts *x, uint32_t layer);
void experts_enter_layer(struct experts *x, uint32_t layer, uint32_t n_tokens);
void experts_layers_begin(struct experts *x, uint32_t layer);
/* The executor's channel, if it has one and gets work. */
void experts_find_channel(struct experts *x, uint64_t now_ns);
void experts_layers_ended(struct experts *x, uint32_t n, double experts_s, uint64_t ended_ns);

/* experts_plan.c: the activated experts, ascending, each with its tokens; memd and the prediction are told. Then who
 * computes what of a round, within the epochs. */
void experts_gather(struct experts *x, const uint32_t *selected);
void experts_tell(struct experts *x, const uint32_t *selected);
void experts_plan(struct experts *x);
/* What things cost now; the CPU infinitely much where cpuexec is not there. */
struct sched_costs experts_costs(const struct experts *x);

/* experts_learnt.c: what layers have taught of costs, for others to read and for the next worker; and what the last one
 * left. */
void experts_publish_learnt(struct experts *x);
void experts_resume_learnt(struct experts *x);
void experts_keep_learnt(const struct experts *x);

/* experts_predict.c: makes x->prediction; tells it what a layer activated; what is predicted of the next layers, as it is now,
 * for the plan of this one; tells memd what the plan wants of it. */
enum error_code experts_predict_init(struct experts *x, struct error *e);
void experts_predict_begin(struct experts *x, const uint32_t *selected);
void experts_observe_prediction(struct experts *x); /* the layer is finished */
void experts_before_wait(struct experts *x); /* for the CPU or a load: who predicts beside is woken, if that was put off */
void experts_look_ahead(struct experts *x, struct sched_layer *layer);
void experts_tell_ahead(struct experts *x);

/* experts_alone.c: makes x->alone, where the device can; looks at a layer's plan. */
enum error_code experts_alone_new(struct experts *x, struct error *e);
void experts_alone_free(struct experts *x);
void experts_alone_observe(struct experts *x);

/* experts_rounds.c: the layer's first round, and the next one when some of what is missing has come; the epochs are odd
 * afterwards. An error: the rest cannot be had, the layer has failed. */
void experts_first_round(struct experts *x);
enum error_code experts_next_round(struct experts *x, struct error *e);
/* The round is computed: what it used of the host tier is given back. */
void experts_end_round(struct experts *x);

/* experts.c: the caller's part of the layer, if it is not done yet. */
enum error_code experts_call_meanwhile(struct experts *x, struct error *e);
/* experts_device.c: the device's share, after which its epoch is even. An error: the device is lost, and there are no rows. */
enum error_code experts_compute_device(struct experts *x, struct error *e);
/* The layer's input, for our threads; and segments [first, first + n) of an activated expert, onto its running sum. */
const struct activations *experts_input(struct experts *x);
struct expert_task experts_task(struct experts *x, const struct activated *a, uint32_t first,
                                uint32_t n);

#endif
