/* The data plane between a worker and the CPU executor: one layer's expert work through shared
 * memory.
 *
 * The worker makes the region (a sealed memfd), lays it out, and offers it over the executor's
 * lease socket (EXPERT_OFFER, ipc/lease_offer.h; the answer is EXPERT_ACCEPT or EXPERT_REFUSE).
 * Then, for each layer:
 *
 *     worker                                          executor
 *     writes x, tasks, indices, groups
 *     pushes a record on `jobs`, rings       --->     copies and checks the tables, computes
 *     waits, watches `progress`              <---     writes rows of `out`, pushes a completion
 *
 * One job is in progress at a time, so the areas are reused.
 *
 * A task is one expert's segments for some tokens. Its result is the sum over its segments in
 * order, one row a token. Where the first segments are computed elsewhere, the result is each
 * segment's rows apart, and the worker adds them in order. The worker combines the results of
 * different tasks in the order of the experts' ranks, so the sum does not depend on which side
 * computed a task, or when.
 *
 * The executor increments `progress` as it computes. A worker reclaims the job and computes it
 * itself when it sees neither completion nor progress for EXPERT_STALL_MS, or when the job takes
 * far longer than it should, counted from when it is `computing`. The worker then never uses this
 * region again, so a late executor writes where no process reads.
 *
 * What the executor reads from the region is input: it copies job, tasks and indices once and
 * checks the copies.
 */
#ifndef MOED_IPC_EXPERT_CHANNEL_H
#define MOED_IPC_EXPERT_CHANNEL_H

#include "base/error.h"
#include "ipc/ring.h"

#include <stdatomic.h>
#include <stdint.h>

#define EXPERT_CHANNEL_MAGIC   0x4e4843584d30ull
#define EXPERT_CHANNEL_VERSION 5u
#define EXPERT_STALL_MS        1000
#define EXPERT_RING_RECORDS    16

/* lease_message.kind on the executor's lease socket; values as lease_offer.h has them. */
enum { EXPERT_OFFER = 0x100, EXPERT_ACCEPT, EXPERT_REFUSE };

struct expert_channel_header {
    uint64_t magic;
    uint32_t version;
    uint32_t max_tokens; /* rows of x */
    uint32_t max_tasks;
    uint32_t max_rows; /* rows of out and entries of indices: over all tasks of a job */
    uint32_t d_model;
    uint32_t reserved;
    uint64_t pool_generation;
    uint64_t bytes;
    uint64_t jobs_offset, completions_offset, tasks_offset, indices_offset, groups_offset, x_offset,
        out_offset;
    /* written by the executor */
    _Alignas(64) _Atomic uint64_t progress;
    _Atomic uint64_t computing; /* the last job that it has begun; a later one still waits while it
                                   computes another worker's */
};
_Static_assert(sizeof(struct expert_channel_header) == 192, "shared layout");

/* Tokens [first, first + n) of a job are a whole group of one prompt (worker/kv/prefix_cache.h).
 * Products that round otherwise than the definition are allowed for them: the group is
 * always the same. */
struct expert_group_record {
    uint32_t first, n;
};
_Static_assert(sizeof(struct expert_group_record) == 8, "shared layout");

/* A record of `jobs`. */
struct expert_job {
    uint64_t sequence;
    uint32_t layer;
    uint32_t n_tokens; /* rows of x */
    uint32_t n_tasks;
    uint32_t n_groups;
    uint32_t pad[10];
};
_Static_assert(sizeof(struct expert_job) == RING_RECORD_BYTES, "ring record");

/* A record of `completions`. */
struct expert_completion {
    uint64_t sequence;
    uint32_t status; /* enum error_code; not OK: the job was refused, out is undefined */
    uint32_t reserved;
    uint64_t compute_ns;
    uint64_t ended_ns; /* clock_ns, one clock for all processes */
    uint64_t pad[4];
};
_Static_assert(sizeof(struct expert_completion) == RING_RECORD_BYTES, "ring record");

struct expert_task_record {
    uint32_t expert;
    uint32_t first_segment, n_segments;
    uint32_t first_row; /* of indices */
    uint32_t n_rows;
    uint32_t first_out; /* row of out: n_rows of them, or n_segments * n_rows where apart */
    uint32_t apart;     /* 1: [n_segments][n_rows] rows; 0: their sum */
    uint32_t slot;      /* of the host tier, where the worker found the expert; 0 without a tier */
};
_Static_assert(sizeof(struct expert_task_record) == 32, "shared layout");

/* Either end, attached. Borrows the mapping. */
struct expert_channel {
    struct expert_channel_header *header;
    uint32_t max_tokens, max_tasks, max_rows, d_model; /* checked copies */
    struct ring jobs, completions;
    struct expert_task_record *tasks;   /* [max_tasks] */
    uint32_t *indices;                  /* [max_rows]: token of each row */
    struct expert_group_record *groups; /* [max_tokens]: ascending, without a common token */
    float *x;                           /* [max_tokens][d_model] */
    float *out;                         /* [max_rows][d_model] */
};

size_t expert_channel_bytes(uint32_t max_tokens, uint32_t n_used, uint32_t n_experts,
                            uint32_t d_model);
/* The worker lays out the zeroed region. max_rows = max_tokens * n_used; max_tasks = n_experts. */
void expert_channel_init(void *memory, uint32_t max_tokens, uint32_t n_used, uint32_t n_experts,
                         uint32_t d_model, uint64_t pool_generation);
enum error_code expert_channel_attach(struct expert_channel *c, void *memory, size_t bytes,
                                      struct error *e);

#endif
