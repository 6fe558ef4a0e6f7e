/* How `moed perplexity` cuts a text: windows of at most `context` tokens, each computed on its own.
 *
 * Window k begins at token k * stride. Where the model wants a begin token, it stands before each
 * window and counts as one of its tokens. A token is scored in the first window that has it and
 * something before it: with the largest stride (windows side by side) that is every token but each
 * window's first, or every one where there is a begin token; with a smaller one the last `stride`
 * tokens of each window, the first window aside. */
#ifndef MOED_CLI_WINDOWS_H
#define MOED_CLI_WINDOWS_H

#include <stdbool.h>
#include <stddef.h>

struct window_plan {
    size_t n_tokens; /* of the text */
    size_t size;     /* the most of them in a window: context, less one for a begin token */
    size_t stride;   /* 1 to size */
    bool begin_token;
};

struct window {
    size_t begin, end;   /* tokens of the text */
    size_t scored_begin; /* those from here to end are scored */
};

/* How many windows there are that score something. */
size_t windows_count(const struct window_plan *plan);
/* Window k, below that count. */
struct window windows_at(const struct window_plan *plan, size_t k);

#endif
