/* Whether the numbers of a tensor are finite. A quantised block holds integers and one or two
 * scales in half precision, so only the scales are looked at. */
#ifndef MOED_QUANT_FINITE_H
#define MOED_QUANT_FINITE_H

#include "gguf/tensor_type.h"

#include <stddef.h>

/* The first of n_blocks blocks, in the file's layout, with a value that is infinite or not a
 * number; n_blocks: none has one. moed must compute with the type. */
size_t quant_find_not_finite(enum tensor_type type, const void *blocks, size_t n_blocks);

#endif
