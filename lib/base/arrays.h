/* Several arrays in one allocation: a module's tables are allocated and freed together.
 *
 *     struct { uint32_t *rows; double *costs; void *memory; } t;
 *     t.memory = ARRAYS_NEW(ARRAY(t.rows, n_rows), ARRAY(t.costs, n_costs));
 *     if (!t.memory) ...
 *     free(t.memory);
 *
 * In a build with AddressSanitizer the bytes between two arrays are poisoned, so an access past
 * the end of one is still reported. */
#ifndef MOED_BASE_ARRAYS_H
#define MOED_BASE_ARRAYS_H

#include <stddef.h>

/* Every array begins at a multiple of this: a cache line, and the widest vector. */
enum { ARRAYS_ALIGNMENT = 64 };

struct array_request {
    void *pointer; /* address of the pointer that is set */
    size_t count, size;
};

#define ARRAY(pointer, count)                                                                      \
    (struct array_request)                                                                         \
    {                                                                                              \
        &(pointer), (count), sizeof *(pointer)                                                     \
    }
#define ARRAYS_NEW(...)                                                                            \
    arrays_new((const struct array_request[]){__VA_ARGS__},                                        \
               sizeof((const struct array_request[]){__VA_ARGS__}) / sizeof(struct array_request))

/* Sets each requested pointer to a zeroed array; one with a count of 0 is not NULL, and is not to
 * be read. Returns the memory that holds them all: the caller frees it with free(). The first array
 * begins at that address, so a module may request itself first and its tables after it. NULL: there
 * is no memory, or the sizes overflow; no pointer is set then. */
void *arrays_new(const struct array_request *requests, size_t n);

#endif
