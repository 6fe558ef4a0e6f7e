/* Sets of code points; see charset.h. Ranges are sorted and joined only when that is needed. */
#include "grammar/charset.h"

#include "base/utf8.h"

#include <stdlib.h>

void charset_fini(struct charset *s)
{
    free(s->ranges);
    *s = (struct charset){0};
}

void charset_add(struct charset *s, uint32_t low, uint32_t high)
{
    if (s->failed || low > high)
        return;
    if (s->n == s->capacity) {
        uint32_t capacity = s->capacity ? s->capacity * 2 : 8;
        struct code_range *larger = realloc(s->ranges, capacity * sizeof *larger);
        s->failed = !larger;
        if (!larger)
            return;
        s->ranges = larger;
        s->capacity = capacity;
    }
    s->ranges[s->n++] = (struct code_range){low, high};
}

static int compare_ranges(const void *a, const void *b)
{
    const struct code_range *x = a, *y = b;
    return x->low < y->low ? -1 : x->low > y->low;
}

/* Sorted, and no two ranges touch. */
static void join(struct charset *s)
{
    uint32_t kept = 0;
    if (s->n == 0)
        return;
    qsort(s->ranges, s->n, sizeof *s->ranges, compare_ranges);
    for (uint32_t i = 1; i < s->n; i++) {
        struct code_range *last = &s->ranges[kept];
        if (s->ranges[i].low > last->high + 1)
            s->ranges[++kept] = s->ranges[i];
        else if (s->ranges[i].high > last->high)
            last->high = s->ranges[i].high;
    }
    s->n = kept + 1;
}

void charset_negate(struct charset *s)
{
    struct charset outside = {0};
    uint32_t from = 0;
    join(s);
    for (uint32_t i = 0; i < s->n; i++) {
        if (s->ranges[i].low > from)
            charset_add(&outside, from, s->ranges[i].low - 1);
        from = s->ranges[i].high + 1;
    }
    charset_add(&outside, from, CODE_POINT_MAX);
    outside.failed = outside.failed || s->failed;
    charset_fini(s);
    *s = outside;
}

void charset_add_class(struct charset *s, char letter)
{
    static const struct code_range digits[] = {{'0', '9'}},
                                   words[] = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}},
                                   spaces[] = {{'\t', '\r'},     {' ', ' '},       {0xa0, 0xa0},
                                               {0x1680, 0x1680}, {0x2000, 0x200a}, {0x2028, 0x2029},
                                               {0x202f, 0x202f}, {0x205f, 0x205f}, {0x3000, 0x3000},
                                               {0xfeff, 0xfeff}};
    const struct code_range *ranges = spaces;
    uint32_t n = sizeof spaces / sizeof spaces[0];
    struct charset own = {0};
    if (letter == 'd' || letter == 'D')
        ranges = digits, n = sizeof digits / sizeof digits[0];
    else if (letter == 'w' || letter == 'W')
        ranges = words, n = sizeof words / sizeof words[0];
    for (uint32_t i = 0; i < n; i++)
        charset_add(&own, ranges[i].low, ranges[i].high);
    if (letter >= 'A' && letter <= 'Z')
        charset_negate(&own);
    for (uint32_t i = 0; i < own.n; i++)
        charset_add(s, own.ranges[i].low, own.ranges[i].high);
    s->failed = s->failed || own.failed;
    charset_fini(&own);
}

void charset_emit(struct charset *s, struct network *n, uint32_t from, uint32_t to)
{
    if (s->failed && !n->error)
        n->error = ERROR_MEMORY;
    join(s);
    for (uint32_t i = 0; i < s->n; i++)
        network_range(n, from, s->ranges[i].low, s->ranges[i].high, to);
}

bool code_point_next(const char *text, size_t len, size_t *at, uint32_t *out)
{
    size_t n = *at < len ? utf8_valid_length(text + *at, len - *at) : 0;
    if (n == 0)
        return false;
    *out = utf8_decode(text + *at, n);
    *at += n;
    return true;
}
