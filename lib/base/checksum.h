/* A 64-bit checksum that notices damaged files. It is fast and not cryptographic. */
#ifndef MOED_BASE_CHECKSUM_H
#define MOED_BASE_CHECKSUM_H

#include <stddef.h>
#include <stdint.h>

/* seed: another one gives another checksum; a checksum may be the seed of the next part's. */
uint64_t checksum64(uint64_t seed, const void *data, size_t bytes);

#endif
