/* Computes the jobs of a grid in parallel processes, and keeps each job's results in a file. A run
 * that was ended continues where it stopped. */
#ifndef MOED_REPLAY_GRID_RUN_H
#define MOED_REPLAY_GRID_RUN_H

#include "bench/replay/grid.h"
#include "bench/replay/result.h"

#include <stdint.h>

struct grid_run {
    const struct grid *grid;
    const char *folder;   /* results: FOLDER/jobs/NAME.csv; exists */
    const char *policies; /* of plan_policies */
    uint32_t n_processes;
};

/* Each file names this program's bytes and the policies; a file of another program or of other
 * policies is computed again. Progress goes to standard error. */
enum error_code grid_run(const struct grid_run *run, struct error *e);

/* One result of a job. */
struct grid_row {
    const struct grid_job *job;
    struct replay_result result; /* only policy, note, vram, batch, decode_tokens_per_s,
                                    prefill_tokens_per_s, hit_rate and bound */
};

/* Reads all results, ordered by job. *rows: the caller frees it. */
enum error_code grid_read(const struct grid_run *run, struct grid_row **rows, uint32_t *n_rows,
                          struct error *e);

#endif
