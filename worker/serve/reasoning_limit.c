/* The limit of reasoning; see reasoning_limit.h. The tool parser of lib/toolcall finds where
 * reasoning begins, and counts it, in the same way. */
#include "reasoning_limit.h"

#include "base/json_space.h"

#include <stdlib.h>
#include <string.h>

struct reasoning_limit *reasoning_limit_new(const struct tokenizer *t)
{
    struct reasoning_limit *l = calloc(1, sizeof *l);
    if (l)
        token_stream_init(&l->stream, t, TOKEN_STREAM_SPECIAL);
    return l;
}

void reasoning_limit_free(struct reasoning_limit *l)
{
    if (!l)
        return;
    strbuf_fini(&l->begin);
    for (uint32_t i = 0; i < l->n_ends; i++)
        strbuf_fini(&l->ends[i]);
    token_list_fini(&l->forced);
    token_list_fini(&l->forbidden);
    strbuf_fini(&l->text);
    free(l);
}

static void drop_text(struct reasoning_limit *l, size_t n)
{
    memmove(l->text.data, l->text.data + n, l->text.len - n);
    l->text.len -= n;
}

/* Whether the reasoning begins, or may still, or does not. */
static enum reasoning_state find_begin(struct reasoning_limit *l)
{
    if (!l->begin.len)
        return REASONING_INSIDE;
    size_t space = json_space_length(l->text.data, l->text.len), left = l->text.len - space;
    size_t n = left < l->begin.len ? left : l->begin.len;
    if (space > REASONING_SPACE_MAX || (n && memcmp(l->text.data + space, l->begin.data, n) != 0))
        return REASONING_OVER;
    if (n < l->begin.len)
        return REASONING_BEFORE;
    drop_text(l, space + n);
    return REASONING_INSIDE;
}

/* Leaves of the text only what may be the beginning of an end. */
static bool find_end(struct reasoning_limit *l)
{
    size_t longest = 1;
    for (uint32_t i = 0; i < l->n_ends; i++) {
        const struct strbuf *end = &l->ends[i];
        if (l->text.len && memmem(l->text.data, l->text.len, end->data, end->len))
            return true;
        longest = end->len > longest ? end->len : longest;
    }
    if (l->text.len >= longest)
        drop_text(l, l->text.len - (longest - 1));
    return false;
}

static void read_text(struct reasoning_limit *l)
{
    if (l->state == REASONING_BEFORE)
        l->state = find_begin(l);
    if (l->state != REASONING_INSIDE)
        return;
    l->n++;
    if (find_end(l))
        l->state = REASONING_OVER;
    else if (l->n >= l->tokens)
        l->state = REASONING_FORCED;
}

bool reasoning_limit_push(struct reasoning_limit *l, uint32_t token)
{
    if (l->state == REASONING_OVER)
        return false;
    if (l->state == REASONING_FORCED) {
        bool forced = token == l->forced.ids[l->n_forced++];
        bool last = forced && l->n_forced == l->forced.count;
        if (last || !forced)
            l->state = REASONING_OVER;
        return last;
    }
    token_stream_push(&l->stream, token, &l->text);
    if (!l->text.failed)
        read_text(l);
    return false;
}

bool reasoning_limit_forces(const struct reasoning_limit *l, uint32_t *token)
{
    if (!l || l->state != REASONING_FORCED)
        return false;
    *token = l->forced.ids[l->n_forced];
    return true;
}

void reasoning_limit_give_up(struct reasoning_limit *l)
{
    l->state = REASONING_OVER;
}

uint32_t reasoning_limit_left(const struct reasoning_limit *l)
{
    return l && l->state == REASONING_FORCED ? (uint32_t)l->forced.count - l->n_forced : 0;
}

uint32_t reasoning_limit_free_tokens(const struct reasoning_limit *l, uint32_t most)
{
    if (!l || l->state == REASONING_OVER)
        return most;
    if (l->state == REASONING_FORCED)
        return 0;
    uint32_t left = l->tokens - l->n;
    return left < most ? left : most;
}
