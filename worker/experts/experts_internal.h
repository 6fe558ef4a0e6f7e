/* What the files of the routed experts share: the layer under way and its two backends.
 *
 *     experts.c          the interface, one layer from begin to finish
 *     experts_plan.c     which tokens go to which expert, and the plan of a round
 *     experts_rounds.c   the rounds of a layer whose experts are not all in host memory
 *     experts_device.c   the device's share: resident segments, then loads as they arrive
 *     cpu_backend.c      the CPU's share: jobs for cpuexec
 *     experts_predict.c  forward's and the control plane's calls of prefetch
 *     device_only.c      layers that the device runs without a plan of the host
 *     layer_work.c       what these share of the layer under way; it uses cpu_backend.c alone
 *
 * Where all experts are in host memory, a layer is one round. Otherwise a round computes the
 * experts that are in memory or whole on the device. The next round computes those that memd has
 * read since, until none is left. A round's experts are activated[n_done, n_done + n_round). */
#ifndef MOED_WORKER_EXPERTS_EXPERTS_INTERNAL_H
#define MOED_WORKER_EXPERTS_EXPERTS_INTERNAL_H

#include "activity.h"
#include "cpu_backend.h"
#include "device_only.h"
#include "experts.h"
#include "worker/calibrate/cost_model.h"
#include "worker/links/device_cache.h"
#include "worker/links/device_compute.h"
#include "worker/links/host_experts.h"
#include "worker/prefetch/prefetch.h"

/* A shorter wait does not count as one. */
#define WAITED_NS 2000u
/* A disk of which no part of a read has come for so long does not answer. */
#define DISK_STALL_MS 10000

/* One activated expert of the layer under way. */
struct activated {
    uint32_t expert;
    uint32_t first_row, n_rows; /* of indices and rows */
    uint32_t device, load, cpu; /* segments, in this order */
    uint32_t done;              /* of device and load: computed */
    uint32_t first_out;         /* of the CPU's rows, in the channel */
    double due_s;               /* after the round's begin: when its loads should have arrived */
    struct cached_expert there; /* its residency at the round's begin */
    uint32_t slot;              /* of the host tier */
    const uint8_t *slab;        /* in the host tier; NULL: in the pool, or not in memory */
    uint32_t fetch;    /* its number among the layer's fetch requests, from 1; 0: not fetched */
    uint32_t failures; /* failed reads of it, when the layer began */
    bool on_host;      /* its rows are completed in host memory */
};

/* The layer under way. */
struct layer_work {
    uint64_t step;
    uint32_t layer, n_tokens;
    struct batch_kind kind;
    const float *values;                   /* [n_tokens][d_model], in host memory */
    const void *prepared;                  /* values on the device; NULL: only in host memory */
    const struct experts_overlap *overlap; /* of experts_finish; NULL: already called */
    uint32_t n_activated, n_done, n_round;
    struct activated *activated;   /* [n_experts], ascending by expert */
    struct activated *round;       /* &activated[n_done] */
    uint32_t n_fetches, n_fetched; /* fetch requests of this layer; those that are counted off */
    bool *fetch_used;              /* [n_experts]: [i] is of fetch request i + 1 */
    bool device_waits;             /* for the round's one load: sched_device_waits */
    bool has_waited;               /* for cpuexec or for a load */
    uint64_t loads;                /* segments that the layer has requested */
    uint64_t found;                /* segments of the round that were resident at its plan */
    uint64_t begun_ns, round_begun_ns, disk_wait_ns;
    uint64_t copies;           /* device_cache_copies when the round began */
    double copying_s;          /* age of the copy under way when the round began */
    double predicted_s;        /* of this layer's rounds */
    struct expert_task *tasks; /* [n_experts] */
    uint32_t *indices;         /* [max_tokens * n_used]: token of each row */
    uint32_t *row_of;          /* [max_tokens * n_used]: row of each token and rank */
    uint32_t *first_row;       /* [n_experts + 1] */
    float *rows;               /* [max_tokens * n_used][d_model]; the device's, where it computes */
    const float **row_at;      /* [max_tokens * n_used]: the completed row */
};

/* A device with memory of its own. */
struct device_backend {
    struct device_cache *cache;       /* NULL: there is no such device */
    struct device_compute *compute;   /* NULL as well */
    struct device_only *only;         /* NULL: the host plans every layer */
    bool lost;                        /* the device has failed */
    struct circuit_breaker breaker;   /* open: nothing is loaded, nor waited for */
    struct cache_heartbeat heartbeat; /* memd's, when the breaker opened; it stays open until memd
                                         shows another */
    bool *fetch;                      /* [n_experts]: tasks whose rows go to host memory */
    const uint8_t **places;           /* [n_experts][n_segments] */
};

struct experts {
    const struct memory_client *memory;
    struct exec *own;
    struct experts_options options;
    struct experts_counters counters;
    uint32_t n_used, n_experts, n_segments, d_model;
    _Atomic int assigner;
    _Atomic bool stopping;        /* memd reads no more for this worker */
    struct cache_link cache_link; /* where there is a device cache or a host tier */
    struct heartbeat *heartbeat;  /* of the thread that computes; NULL: none */
    uint32_t disk_stall_ms;       /* without a part of a read: DISK_STALL_MS, less in tests */
    struct host_experts *host;    /* NULL: all experts are in the pool */
    struct cpu_backend cpu;
    struct device_backend device;
    struct cost_model cost;
    struct prefetch *prefetch; /* where there is a device cache or a host tier */
    struct layer *layer;       /* its decisions; where there is a device cache */
    struct activity *activity; /* for people who watch */
    struct layer_work work;
    struct spinner copy_spinner, disk_spinner; /* waits for memd */
    uint64_t disk_wait_ns;                     /* since experts_count_disk_wait */
    void *arrays;                /* the memory of work's and device's arrays, and of these: */
    struct layer_expert *inputs; /* [n_experts]: of a round's plan */
    struct cache_hint *hints;    /* [n_experts]: sent to memd */
};

/* layer_work.c */

/* The step of a layer that begins now. */
uint64_t experts_step_of(const struct experts *x, uint32_t layer);
/* Makes this layer the one under way. */
void experts_enter_layer(struct experts *x, uint32_t layer, uint32_t n_tokens,
                         struct batch_kind kind);
/* Finds the executor's channel for the layer. */
void experts_find_channel(struct experts *x, uint64_t now_ns);
/* Calls the caller's overlapped work, once. */
enum error_code experts_call_overlap(struct experts *x, struct error *e);
/* The layer's input for the worker's own threads, quantised where the experts' weights need it. */
const struct activations *experts_input(struct experts *x);
/* The task to add segments [first, first + n) of an activated expert to its sum. */
struct expert_task experts_task(struct experts *x, const struct activated *a, uint32_t first,
                                uint32_t n);

/* Before a wait for the CPU or for a load. */
void experts_before_wait(struct experts *x);
/* The CPU has computed segments; only where there is a device cache. */
void experts_count_on_cpu(struct experts *x, uint64_t segments, uint64_t ns);

/* experts_plan.c */

/* Collects the activated experts, ascending, each with its tokens. */
void experts_gather(struct experts *x, const uint32_t *selected);
/* Reports them to memd, to the predictor and to people who watch. */
void experts_report(struct experts *x, const uint32_t *selected);
/* What the layer should take, if the CPU computes all of it. */
double experts_cpu_only_s(const struct experts *x);
/* Plans the round, within the epochs, and requests its loads from memd. */
void experts_plan(struct experts *x);

/* experts_rounds.c */

/* Chooses the layer's first round, and enters its epochs. */
void experts_first_round(struct experts *x);
/* Waits until memd has read some missing experts, and chooses them as the next round. An error: the
 * layer has failed. */
enum error_code experts_next_round(struct experts *x, struct error *e);
/* The round is computed: releases its experts of the host tier. */
void experts_end_round(struct experts *x);

/* experts_device.c: computes the device's share, and leaves its epoch. An error: the device is
 * lost, and there are no rows. */
enum error_code experts_compute_device(struct experts *x, struct error *e);

/* device_only.c */

/* Makes x->device.only, where the device can run layers without a plan. */
enum error_code device_only_new(struct experts *x, struct error *e);
void device_only_free(struct experts *x);
/* A layer was planned: notes whether every expert was resident. */
void device_only_observe(struct experts *x);

#endif
