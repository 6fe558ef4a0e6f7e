/* The grid of `moed-replay --report`: models, machines, and the axes of synthetic traces. A job is
 * one trace on one machine; a cell is a job's combination of budget and batch, without its seed.
 * The seeds are for evaluation: constants of lib/sched were chosen on other traces
 * (docs/design/caching.md). */
#ifndef MOED_REPLAY_GRID_H
#define MOED_REPLAY_GRID_H

#include "bench/replay/machine.h"
#include "bench/replay/synthesize.h"

enum { GRID_MOST_VALUES = 8, GRID_FIRST_SEED = 2001, GRID_MOST_SEEDS = 30 };

struct grid_model {
    const char *name;
    const char *like;  /* of synthesis_like; NULL: the demo model's size */
    uint32_t n_layers; /* simulated layers with experts: layers behave alike */
    double skew, locality, topic_strength, predictability;
    const char *source; /* of these four */
};
extern const struct grid_model grid_models[]; /* ends with a NULL name */

struct grid_options {
    bool few;                      /* the short form */
    const char *models, *machines; /* lists, "demo,mixtral"; NULL: all of the form */
    uint64_t n_seeds;              /* 0: those of the form */
};

struct grid_job {
    const char *section; /* "machines", "axes", ...: a table of the report */
    const struct grid_model *model;
    const char *machine;
    double skew, locality, predictability;
    uint32_t prompt, answer, seed; /* tokens of a sequence's prompt and answer */
    double vram[GRID_MOST_VALUES];
    uint32_t batch[GRID_MOST_VALUES];
    uint32_t n_vram, n_batch;
};

struct grid {
    struct grid_job *jobs;
    uint32_t n_jobs, capacity;
    uint32_t n_impossible; /* cells left out: the share of the experts does not fit the machine */
};

/* Makes the jobs. ERROR_USAGE: an unknown model or machine, or nothing is left. */
enum error_code grid_init(struct grid *g, const struct grid_options *o, struct error *e);
void grid_fini(struct grid *g); /* takes a zeroed one */

/* Sequences that a replay of this batch computes. */
uint32_t grid_sequences(uint32_t batch);
/* Parameters of the job's trace. */
struct synthesis grid_synthesis(const struct grid_job *job);
/* True if the jobs differ in their machine and budgets only, so one trace serves both. */
bool grid_same_trace(const struct grid_job *a, const struct grid_job *b);
/* "machines.mixtral.desktop.l0.3.k0.2.p0.96.512.2001": unique in the grid, a file's name. */
void grid_job_name(const struct grid_job *job, char out[160]);

#endif
