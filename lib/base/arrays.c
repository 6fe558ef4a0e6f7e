/* Several arrays in one allocation; see arrays.h. */
#include "base/arrays.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#ifdef __has_feature
#define IS_ASAN __has_feature(address_sanitizer)
#elif defined(__SANITIZE_ADDRESS__)
#define IS_ASAN 1
#else
#define IS_ASAN 0
#endif
#if IS_ASAN
#include <sanitizer/asan_interface.h>
#endif

/* Bytes of one array with what follows it: rounded up, and a gap where gaps are poisoned. */
static bool place_bytes(const struct array_request *r, size_t *out)
{
    size_t bytes, gap = IS_ASAN ? ARRAYS_ALIGNMENT : 0;
    if (__builtin_mul_overflow(r->count, r->size, &bytes) ||
        __builtin_add_overflow(bytes, (size_t)ARRAYS_ALIGNMENT - 1 + gap, &bytes))
        return false;
    *out = bytes / ARRAYS_ALIGNMENT * ARRAYS_ALIGNMENT;
    return true;
}

static bool total_bytes(const struct array_request *requests, size_t n, size_t *out)
{
    size_t total = ARRAYS_ALIGNMENT, bytes; /* aligned_alloc takes no 0 */
    for (size_t i = 0; i < n; i++)
        if (!place_bytes(&requests[i], &bytes) || __builtin_add_overflow(total, bytes, &total))
            return false;
    *out = total;
    return total <= PTRDIFF_MAX;
}

void *arrays_new(const struct array_request *requests, size_t n)
{
    size_t total, bytes = 0;
    uint8_t *memory =
        total_bytes(requests, n, &total) ? aligned_alloc(ARRAYS_ALIGNMENT, total) : NULL;
    if (!memory)
        return NULL;
    memset(memory, 0, total);
    uint8_t *next = memory;
    for (size_t i = 0; i < n; i++) {
        memcpy(requests[i].pointer, &next, sizeof next);
        place_bytes(&requests[i], &bytes);
#if IS_ASAN
        size_t used = requests[i].count * requests[i].size;
        __asan_poison_memory_region(next + used, bytes - used);
#endif
        next += bytes;
    }
    return memory;
}
