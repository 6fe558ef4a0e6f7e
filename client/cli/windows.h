/* moed perplexity cuts a text into windows of at most `context` tokens, each computed on its own.
 *
 * Window k begins at token k * stride. Where the model wants a begin token, it precedes each window
 * and counts as one of its tokens. A token is scored in the first window that has it and a token
 * before it. With the largest stride, windows side by side, that is every token but the first of
 * each window, and with a begin token every token. With a smaller stride it is the last `stride`
 * tokens of each window, and of the first window all of the above.
 *
 * halves: as llama-perplexity has it. The windows are side by side, a shorter rest is left out, and
 * of each the second half is scored: tokens from size / 2 + 1 on. */
#ifndef MOED_CLI_WINDOWS_H
#define MOED_CLI_WINDOWS_H

#include <stdbool.h>
#include <stddef.h>

struct window_plan {
    size_t n_tokens; /* of the text */
    size_t size;     /* text tokens of a window: context, less one for a begin token */
    size_t stride;   /* 1 to size */
    bool begin_token;
    bool halves; /* then stride is size, at least 3, and begin_token false */
};

struct window {
    size_t begin, end;   /* tokens of the text */
    size_t scored_begin; /* tokens from here to end are scored */
};

/* The number of windows that score a token. */
size_t windows_count(const struct window_plan *plan);
/* Window k; k is less than that count. */
struct window windows_at(const struct window_plan *plan, size_t k);

#endif
