/* Checking workers' jobs; see job.h. */
#include "job.h"

#include <inttypes.h>
#include <string.h>

enum error_code expert_job_take(const struct expert_channel *ch, const struct expert_job *job,
                                const struct pool_map *map, const struct host_tier *tier,
                                struct expert_task *tasks, uint32_t *indices, struct error *e)
{
    if (job->layer >= map->params.n_layers || job->n_tokens == 0 ||
        job->n_tokens > ch->max_tokens || job->n_tasks > ch->max_tasks)
        return error_set(e, ERROR_PROTOCOL, "job %" PRIu64 " is out of range", job->sequence);
    const struct pool_slabs *slabs = &map->slabs[job->layer];
    uint32_t rows_total = 0, out_total = 0;
    for (uint32_t i = 0; i < job->n_tasks; i++) {
        struct expert_task_record r;
        memcpy(&r, &ch->tasks[i], sizeof r);
        if (r.expert >= slabs->n_experts || r.n_segments == 0 ||
            r.first_segment >= slabs->n_segments ||
            r.n_segments > slabs->n_segments - r.first_segment || r.n_rows > job->n_tokens ||
            r.first_row > ch->max_rows - r.n_rows || r.n_rows > ch->max_rows - rows_total ||
            r.apart > 1 || (tier->slots && r.slot >= tier->n_slots))
            return error_set(e, ERROR_PROTOCOL, "job %" PRIu64 ": task %" PRIu32 " is out of range",
                             job->sequence, i);
        uint64_t n_out = (uint64_t)r.n_rows * (r.apart ? r.n_segments : 1);
        if (n_out > ch->max_rows - out_total || r.first_out > ch->max_rows - n_out)
            return error_set(e, ERROR_PROTOCOL,
                             "job %" PRIu64 ": the rows of task %" PRIu32 " do not fit",
                             job->sequence, i);
        rows_total += r.n_rows;
        out_total += (uint32_t)n_out;
        tasks[i] = (struct expert_task){.expert = r.expert,
                                        .first_segment = r.first_segment,
                                        .n_segments = r.n_segments,
                                        .n_tokens = r.n_rows,
                                        .tokens = indices + r.first_row,
                                        .out = ch->out + (size_t)r.first_out * ch->d_model,
                                        .output = r.apart ? EXPERT_APART : EXPERT_SUM,
                                        .slab = tier->slots ? host_tier_slot(tier, r.slot) : NULL};
        for (uint32_t row = r.first_row; row < r.first_row + r.n_rows; row++) {
            indices[row] = ch->indices[row];
            if (indices[row] >= job->n_tokens)
                return error_set(e, ERROR_PROTOCOL,
                                 "job %" PRIu64 ": a row names a token that the job does not have",
                                 job->sequence);
        }
    }
    return ERROR_OK;
}

enum error_code expert_job_take_groups(const struct expert_channel *ch,
                                       const struct expert_job *job, struct row_group *groups,
                                       struct error *e)
{
    if (job->n_groups > job->n_tokens)
        return error_set(e, ERROR_PROTOCOL, "job %" PRIu64 ": more groups than tokens",
                         job->sequence);
    for (uint32_t i = 0, next = 0; i < job->n_groups; i++) {
        struct expert_group_record r;
        memcpy(&r, &ch->groups[i], sizeof r);
        if (r.first < next || r.first > job->n_tokens || r.n == 0 || r.n > job->n_tokens - r.first)
            return error_set(e, ERROR_PROTOCOL,
                             "job %" PRIu64 ": group %" PRIu32 " is out of range", job->sequence,
                             i);
        groups[i] = (struct row_group){r.first, r.n};
        next = r.first + r.n;
    }
    return ERROR_OK;
}
