/* Checksums; see checksum.h. Four lanes of multiply and rotate, for words of 8 bytes, whose results
 * are folded at the end. */
#include "base/checksum.h"

#include <string.h>

#define ODD_1 0x9e3779b97f4a7c15ull /* odd, with bits in no pattern: of the golden ratio */
#define ODD_2 0xd1b54a32d192ed03ull

static uint64_t step(uint64_t lane, uint64_t word)
{
    lane = (lane ^ word) * ODD_1;
    return lane << 29 | lane >> 35;
}

static uint64_t fold(uint64_t h)
{
    h = (h ^ h >> 32) * ODD_2;
    h = (h ^ h >> 29) * ODD_1;
    return h ^ h >> 32;
}

uint64_t checksum64(uint64_t seed, const void *data, size_t bytes)
{
    const uint8_t *at = data;
    uint64_t lanes[4], words[4];
    for (unsigned i = 0; i < 4; i++)
        lanes[i] = fold(seed + (i + 1) * ODD_2);
    size_t left = bytes;
    for (; left >= sizeof words; left -= sizeof words, at += sizeof words) {
        memcpy(words, at, sizeof words);
        for (unsigned i = 0; i < 4; i++)
            lanes[i] = step(lanes[i], words[i]);
    }
    memset(words, 0, sizeof words);
    memcpy(words, at, left);
    uint64_t h = bytes;
    for (unsigned i = 0; i < 4; i++)
        h = fold(h ^ step(lanes[i], words[i]));
    return h;
}
