/* Loading a model's weights from its file into the host pool, in parallel. */
#ifndef MOED_MEMD_LOAD_LOAD_H
#define MOED_MEMD_LOAD_LOAD_H

#include "base/error.h"
#include "exec/numa.h"
#include "exec/pool.h"
#include "model/pool_plan.h"

/* Called by the loading threads, about a hundred times. */
typedef void load_progress(void *arg, uint64_t bytes_done, uint64_t bytes_total);

/* Fills pool (plan->header.bytes, zeroed, page-aligned) with every weight of the plan; of a tiered
 * plan, with the dense weights. Each thread reads chunks of at most LOAD_CHUNK_BYTES (or 16 rows,
 * or a whole vector, where these are larger), so the peak memory is the pool and a chunk a thread.
 * places: of the pool's pages; NULL: anywhere. */
#define LOAD_CHUNK_BYTES (512u << 10)
enum error_code load_weights(const struct gguf *g, const struct pool_plan *plan, uint8_t *pool,
                             struct numa_places *places, struct pool *threads,
                             load_progress *progress, void *progress_arg, struct error *e);

#endif
