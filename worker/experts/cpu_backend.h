/* The CPU's share of a layer: jobs for cpuexec over shared memory. The worker reclaims a job, which
 * means that it computes the job itself, when cpuexec dies, stalls or takes far too long. The
 * engine's thread. */
#ifndef MOED_WORKER_EXPERTS_CPU_BACKEND_H
#define MOED_WORKER_EXPERTS_CPU_BACKEND_H

#include "circuit_breaker.h"
#include "worker/links/expert_link.h"

#include "base/spinner.h"
#include "exec/row_groups.h"
#include "ipc/expert_channel.h"

struct cpu_backend {
    struct expert_link *link;       /* NULL: there is no cpuexec */
    struct expert_channel *channel; /* NULL: no executor is attached, or it gets no jobs */
    struct circuit_breaker breaker; /* open: cpuexec gets no jobs */
    uint64_t sequence;              /* of the last job */
    uint32_t n_tasks;               /* of the job under way; 0: none is */
    bool inputs_sent;               /* the layer's input lies in the channel */
    struct spinner spinner;         /* the wait for a job */
};

/* Before a layer: sets b->channel. */
void cpu_backend_find(struct cpu_backend *b, uint64_t now_ns);

/* A layer's input, [n_tokens][d_model], and the token of each of its n_rows rows. */
struct cpu_backend_input {
    uint32_t layer, n_tokens, n_rows, d_model;
    const float *values;
    const uint32_t *indices;
    struct row_groups groups;
};
/* Sends the b->n_tasks tasks that lie in the channel; input is copied with the first job of a
 * layer. False: the channel is broken. */
bool cpu_backend_send(struct cpu_backend *b, const struct cpu_backend_input *input);

/* Waits for the job under way. expected_s: the time that it should take. patient: wait for ever, as
 * long as cpuexec makes progress. False: the caller must reclaim the job. */
bool cpu_backend_await(struct cpu_backend *b, double expected_s, bool patient,
                       struct expert_completion *done);
/* The channel has failed and is not used again. */
void cpu_backend_abandon(struct cpu_backend *b);

#endif
