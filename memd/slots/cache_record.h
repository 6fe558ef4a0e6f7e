/* Checks the records that a worker writes into the rings of its cache channel. */
#ifndef MOED_MEMD_SLOTS_CACHE_RECORD_H
#define MOED_MEMD_SLOTS_CACHE_RECORD_H

#include "ipc/cache_channel.h"
#include "model/pool_map.h"

/* The largest cost, in seconds, but for the CPU's, which may be infinite: sums and products of
 * costs stay finite. */
#define CACHE_RECORD_COST_MOST 1e15f

/* Returns NULL, or what is wrong with the record. asking: the kind of record by which this ring
 * requests experts, CACHE_LOAD or CACHE_FETCH. */
const char *cache_record_check(const struct cache_record *r, enum cache_record_kind asking,
                               const struct pool_slabs *slabs, uint32_t n_layers);

#endif
