/* Generates the bytes of a plan's tensors with several threads and delivers them in order. */
#ifndef MOED_MKMODEL_GENERATE_H
#define MOED_MKMODEL_GENERATE_H

#include "base/error.h"
#include "mkmodel/plan.h"

#include <stddef.h>
#include <stdint.h>

/* Calls deliver from the calling thread with chunks of the bytes of tensor 0, then 1, ... A chunk
 * never spans two tensors. Stops at the first error that deliver returns. threads 0: one per core.
 */
enum error_code generate_tensors(const struct plan *p, uint32_t threads,
                                 enum error_code (*deliver)(uint64_t tensor, const void *data,
                                                            size_t len, void *arg, struct error *e),
                                 void *arg, struct error *e);

#endif
