/* How many there may be of what is counted: characters, elements, members, repetitions. */
#ifndef MOED_GRAMMAR_BOUNDS_H
#define MOED_GRAMMAR_BOUNDS_H

#include <stdbool.h>
#include <stdint.h>

#define BOUNDS_OPEN UINT32_MAX /* no maximum */

struct count_bounds {
    uint32_t min, max;
};

static inline struct count_bounds bounds_any(void)
{
    return (struct count_bounds){0, BOUNDS_OPEN};
}

/* Is there a number that does not satisfy them? */
static inline bool bounds_bind(struct count_bounds b)
{
    return b.min > 0 || b.max != BOUNDS_OPEN;
}

static inline bool bounds_have(struct count_bounds b, uint32_t n)
{
    return b.min <= n && n <= b.max;
}

static inline bool bounds_are_empty(struct count_bounds b)
{
    return b.max < b.min;
}

/* The number beyond which all satisfy them, or none. */
static inline uint32_t bounds_last(struct count_bounds b)
{
    return b.max == BOUNDS_OPEN ? b.min : b.max;
}

/* What satisfies both. */
static inline struct count_bounds bounds_both(struct count_bounds a, struct count_bounds b)
{
    return (struct count_bounds){a.min > b.min ? a.min : b.min, a.max < b.max ? a.max : b.max};
}

/* Two that are not empty themselves: can no number satisfy both? */
static inline bool bounds_exclude(struct count_bounds a, struct count_bounds b)
{
    return a.max < b.min || b.max < a.min;
}

/* Those of a repetition that a definition may have. */
enum { REPEAT_MAX = 100000 };

static inline bool bounds_can_repeat(struct count_bounds b)
{
    return !bounds_are_empty(b) && b.min < REPEAT_MAX &&
           (b.max < REPEAT_MAX || b.max == BOUNDS_OPEN);
}

#endif
