/* Memory that is freed at once: a compiled template's tree, or everything that one render makes.
 * One thread at a time. */
#ifndef MOED_JINJA_ARENA_H
#define MOED_JINJA_ARENA_H

#include <stddef.h>

struct arena_block;

struct arena {
    struct arena_block *blocks; /* the newest first */
    char *next, *end;           /* free bytes of the newest block */
    size_t bytes, limit;        /* taken from the heap, and at most */
};

void arena_init(struct arena *a, size_t limit);
void arena_fini(struct arena *a);
/* Bytes aligned to 16, not cleared. NULL: the limit is reached, or the heap has no more. */
void *arena_alloc(struct arena *a, size_t bytes);

#endif
