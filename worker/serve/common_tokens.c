/* See common_tokens.h. */
#include "common_tokens.h"

#include <string.h>

uint32_t common_tokens(const uint32_t *a, const uint32_t *b, uint32_t n, uint32_t from)
{
    uint32_t same = from + KV_POOL_TOKENS;
    if (n < KV_POOL_TOKENS || from > n - KV_POOL_TOKENS ||
        memcmp(a + from, b + from, KV_POOL_TOKENS * sizeof *a) != 0 ||
        memcmp(a, b, from * sizeof *a) != 0)
        return 0;
    while (same < n && a[same] == b[same])
        same++;
    return same;
}
