/* The bytes of a plan's tensors, made by several threads, delivered in order. */
#ifndef MOED_MKMODEL_GENERATE_H
#define MOED_MKMODEL_GENERATE_H

#include "base/error.h"
#include "mkmodel/plan.h"

#include <stddef.h>
#include <stdint.h>

/* Calls deliver, from this thread, with the bytes of tensor 0, then 1, ... in pieces that end with
 * the tensors; stops at the first error that deliver returns. threads 0: one a core. */
enum error_code generate_tensors(const struct plan *p, uint32_t threads,
                                 enum error_code (*deliver)(uint64_t tensor, const void *data,
                                                            size_t len, void *arg, struct error *e),
                                 void *arg, struct error *e);

#endif
