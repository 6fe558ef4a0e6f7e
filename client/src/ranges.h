/* libmoed: ranges of a text, as messages have them. */
#ifndef MOED_CLIENT_RANGES_H
#define MOED_CLIENT_RANGES_H

#include "client/include/moed.h"

/* [2 * count]: start, end, start, end, ...; the caller frees them. NULL: no memory. */
uint32_t *ranges_pack(const struct moed_range *ranges, size_t count);

#endif
