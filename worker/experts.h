/* The routed experts of a layer: planned from the residency table, sent to the CPU executor through shared
 * memory, and taken back when it dies or stalls. The result does not depend on who computed it. */
#ifndef MOED_WORKER_EXPERTS_H
#define MOED_WORKER_EXPERTS_H

#include "base/error.h"
#include "exec/exec.h"
#include "memory/memory_client.h"
#include "metrics/metrics.h"

struct experts;

struct experts_counters {
    struct counter *sent, *local, *taken_back, *wait_ns;
};

/* Borrows all. max_tokens: of one layer call. own: computes where no executor does. */
enum error_code experts_new(const char *run, const struct memory_client *memory, struct exec *own,
                            uint32_t max_tokens, unsigned spin_us,
                            const struct experts_counters *counters, struct experts **out,
                            struct error *e);
void experts_free(struct experts *x); /* takes NULL */

/* Wait at start until an executor is attached, at most timeout_ms. Going on without is allowed. */
bool experts_wait(struct experts *x, int timeout_ms);

/* Start layer's experts for n_tokens rows of x [n_tokens][d_model]; selected[t * n_used + rank] is an expert
 * of token t. Then finish: waits, and gives for token t and rank k the row
 * rows[experts_row(x, t, k) * d_model], valid until the next begin. values stays valid in between.
 * one_request: as forward_run's. */
void experts_begin(struct experts *x, uint32_t layer, const float *values, uint32_t n_tokens,
                   const uint32_t *selected, bool one_request);
const float *experts_finish(struct experts *x);
uint32_t experts_row(const struct experts *x, uint32_t token, uint32_t rank);

#endif
