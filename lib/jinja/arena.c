/* Blocks that double in size; see arena.h. */
#include "jinja/arena.h"

#include <stdlib.h>

#define FIRST_BLOCK   4096
#define LARGEST_BLOCK (1u << 20) /* larger requests get a block of their own */
#define ALIGNMENT     16u

struct arena_block {
    struct arena_block *before;
    size_t bytes;
};

_Static_assert(sizeof(struct arena_block) % ALIGNMENT == 0, "blocks begin with aligned memory");

void arena_init(struct arena *a, size_t limit)
{
    *a = (struct arena){.limit = limit};
}

void arena_fini(struct arena *a)
{
    while (a->blocks) {
        struct arena_block *before = a->blocks->before;
        free(a->blocks);
        a->blocks = before;
    }
    *a = (struct arena){0};
}

/* Makes a block with at least `bytes` free. */
static char *grow(struct arena *a, size_t bytes)
{
    size_t size = a->blocks ? 2 * a->blocks->bytes : FIRST_BLOCK;
    if (size > LARGEST_BLOCK)
        size = LARGEST_BLOCK;
    if (size < bytes + sizeof(struct arena_block))
        size = bytes + sizeof(struct arena_block);
    if (size > a->limit - a->bytes)
        return NULL;
    struct arena_block *block = malloc(size);
    if (!block)
        return NULL;
    *block = (struct arena_block){.before = a->blocks, .bytes = size};
    a->blocks = block;
    a->bytes += size;
    a->next = (char *)(block + 1);
    a->end = (char *)block + size;
    return a->next;
}

void *arena_alloc(struct arena *a, size_t bytes)
{
    if (bytes > a->limit)
        return NULL;
    bytes = (bytes + ALIGNMENT - 1) & ~(size_t)(ALIGNMENT - 1);
    if ((size_t)(a->end - a->next) < bytes && !grow(a, bytes))
        return NULL;
    char *result = a->next;
    a->next += bytes;
    return result;
}
