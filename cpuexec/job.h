/* The jobs of workers, which are input: each number in them is copied once and checked. */
#ifndef MOED_CPUEXEC_JOB_H
#define MOED_CPUEXEC_JOB_H

#include "exec/exec.h"
#include "ipc/expert_channel.h"
#include "ipc/host_tier.h"
#include "model/pool_map.h"

/* Fills tasks [job->n_tasks] of [ch->max_tasks] and indices [ch->max_rows] with the job's tables.
 * The tasks point into indices, the channel and the tier. ERROR_PROTOCOL: a number is out of range.
 */
enum error_code expert_job_take(const struct expert_channel *ch, const struct expert_job *job,
                                const struct pool_map *map, const struct host_tier *tier,
                                struct expert_task *tasks, uint32_t *indices, struct error *e);
/* After it: fills groups [job->n_groups] of [ch->max_tokens]. */
enum error_code expert_job_take_groups(const struct expert_channel *ch,
                                       const struct expert_job *job, struct row_group *groups,
                                       struct error *e);

#endif
