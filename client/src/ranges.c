/* Ranges of a text; see ranges.h. */
#include "client/src/ranges.h"

#include <stdlib.h>

uint32_t *ranges_pack(const struct moed_range *ranges, size_t count)
{
    uint32_t *pairs = calloc(count + 1, 2 * sizeof *pairs);
    for (size_t i = 0; pairs && i < count; i++) {
        pairs[2 * i] = ranges[i].start < UINT32_MAX ? (uint32_t)ranges[i].start : UINT32_MAX;
        pairs[2 * i + 1] = ranges[i].end < UINT32_MAX ? (uint32_t)ranges[i].end : UINT32_MAX;
    }
    return pairs;
}
