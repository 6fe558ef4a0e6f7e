/* Whether keys and values that another build computed are those that this build would compute. */
#ifndef MOED_MODEL_KV_ARITHMETIC_H
#define MOED_MODEL_KV_ARITHMETIC_H

#include "model/params.h"

/* Raise it with each change of what keys and values are: of a formula, of a constant in it, of a
 * row of architecture.h, of the order of sums. Conversations of before are then computed anew. What
 * is read from the model's file into struct model_params counts without it. ROUNDING_VERSION of the
 * worker is for changes of float products alone. */
enum { KV_ARITHMETIC_VERSION = 1 };

/* A checksum of KV_ARITHMETIC_VERSION and of the model's parameters, without name and architecture:
 * memd's have none, and the file has it. */
uint64_t kv_arithmetic(const struct model_params *p);

#endif
