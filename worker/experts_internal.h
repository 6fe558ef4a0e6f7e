/* What experts.c, experts_plan.c, experts_predict.c and experts_device.c share: the layer under way. */
#ifndef MOED_WORKER_EXPERTS_INTERNAL_H
#define MOED_WORKER_EXPERTS_INTERNAL_H

#include "calibration.h"
#include "device_cache.h"
#include "expert_link.h"
#include "experts.h"
#include "layer_costs.h"

/* One activated expert of the layer under way. */
struct activated {
    uint32_t expert;
    uint32_t first_row, n_rows; /* of indices and rows */
    uint32_t device, load, cpu; /* segments, in this order */
    uint32_t first_out;         /* of the CPU's rows, in the channel */
    double due_s;               /* since the layer began: when its loads should be there */
};

struct experts {
    const struct memory_client *memory;
    struct exec *own;
    struct experts_options options;
    _Atomic int assigner;
    struct experts_counters counters;
    uint32_t n_used, n_experts, n_segments, d_model;
    struct expert_link *link;
    struct device_cache *cache;     /* NULL: the device has no memory of its own */
    struct calibration calibration; /* where there is a cache */
    struct layer_costs costs;
    /* for others to read */
    _Atomic double device_correction, cpu_correction, slowdown_correction, link_correction;
    uint64_t step;
    uint64_t *last_use;             /* [n_layers][n_experts]: step */
    struct prediction *prediction;  /* where there is a cache with room for a part */
    struct cache_mention *mentions; /* [n_experts]: what memd is told */

    /* the job under way */
    struct expert_channel *channel; /* NULL: not sent */
    uint64_t sequence;
    bool one_request;
    uint32_t layer, n_tokens, n_activated, n_cpu;
    const float *values;
    uint64_t begun_ns;
    uint64_t copies;             /* to the device, when it began: device_cache_copies */
    double predicted_s;          /* of this layer */
    double copying_s;            /* for so long a copy was under way already */
    struct activated *activated; /* [n_experts] */
    struct sched_expert *plan;   /* [n_experts] */
    struct expert_task *tasks;   /* [n_experts] */
    const uint8_t **places;      /* [n_experts][n_segments] */
    uint32_t *indices;           /* [max_tokens * n_used]: token of each row */
    uint32_t *row_of;            /* [max_tokens * n_used]: row of each token and rank */
    uint32_t *first_row;         /* [n_experts + 1] */
    float *rows;                 /* [max_tokens * n_used][d_model] */
    const float **row_at;        /* [max_tokens * n_used]: where the finished row lies */
};

/* experts_plan.c: the activated experts, ascending, each with its tokens; who computes what of them, memd and the
 * prediction being told. The device's epoch is odd afterwards. */
void experts_gather(struct experts *x, const uint32_t *selected);
void experts_plan(struct experts *x, const uint32_t *selected);
/* What things cost now; the CPU infinitely much where cpuexec is not there. */
struct sched_costs experts_costs(const struct experts *x);

/* experts_predict.c: makes x->prediction. */
enum error_code experts_predict_init(struct experts *x, struct error *e);

/* experts_device.c: the device's share, after which its epoch is even. */
void experts_compute_device(struct experts *x);
/* The layer's input, for our threads; and segments [first, first + n) of an activated expert, onto its running sum. */
const struct activations *experts_input(struct experts *x);
struct expert_task experts_task(struct experts *x, const struct activated *a, uint32_t first,
                                uint32_t n);

#endif
