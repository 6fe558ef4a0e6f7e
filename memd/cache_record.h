/* Checking what a worker writes into the rings of its cache channel. */
#ifndef MOED_MEMD_CACHE_RECORD_H
#define MOED_MEMD_CACHE_RECORD_H

#include "ipc/cache_channel.h"
#include "model/pool_map.h"

/* NULL, or what is wrong with it, in words. asking: the kind by which experts are asked for in this ring, CACHE_LOAD or
 * CACHE_FETCH. */
const char *cache_record_check(const struct cache_record *r, enum cache_record_kind asking,
                               const struct pool_slabs *slabs, uint32_t n_layers);

#endif
