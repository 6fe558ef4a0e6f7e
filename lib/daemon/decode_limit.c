/* Bounded unpacking; see decode_limit.h. */
#include "daemon/decode_limit.h"

#include <stdlib.h>

static void *limit_alloc(void *data, size_t bytes)
{
    struct decode_limit *l = data;
    if (bytes > l->left)
        return NULL;
    l->left -= bytes;
    return malloc(bytes);
}

static void limit_free(void *data, void *p)
{
    free(p);
}

void decode_limit_init(struct decode_limit *l, size_t bytes)
{
    *l = (struct decode_limit){
        .allocator = {.alloc = limit_alloc, .free = limit_free, .allocator_data = l},
        .left = bytes,
    };
}
