/* Requests, and the text side of generating: see request.h. */
#include "request.h"

#include <stdlib.h>
#include <string.h>

struct request *request_new(const struct tokenizer *t, struct frontend *frontend, uint64_t id,
                            enum request_kind kind)
{
    struct request *r = calloc(1, sizeof *r);
    if (!r)
        return NULL;
    r->frontend = frontend;
    r->id = id;
    r->kind = kind;
    r->slot = -1;
    token_stream_init(&r->stream, t, 0);
    return r;
}

void request_free(struct request *r)
{
    if (!r)
        return;
    for (uint32_t i = 0; i < r->n_stops; i++)
        strbuf_fini(&r->stops[i]);
    token_list_fini(&r->tokens);
    strbuf_fini(&r->text);
    strbuf_fini(&r->unsent);
    recording_free(r->recording);
    free(r->hidden);
    free(r);
}

uint32_t request_positions(const struct request *r, uint32_t context)
{
    if (r->kind != REQUEST_GENERATE || r->prompt_only)
        return r->n_prefill;
    if (!r->max_tokens || r->max_tokens > context - r->n_prompt)
        return context;
    return r->n_prompt + r->max_tokens - 1;
}

/* The earliest place where a whole stop string stands in the held text; false: none. */
static bool find_stop(const struct request *r, size_t *at)
{
    bool found = false;
    for (uint32_t i = 0; i < r->n_stops; i++) {
        const struct strbuf *stop = &r->stops[i];
        const char *p =
            r->text.len ? memmem(r->text.data, r->text.len, stop->data, stop->len) : NULL;
        if (p && (!found || (size_t)(p - r->text.data) < *at)) {
            *at = (size_t)(p - r->text.data);
            found = true;
        }
    }
    return found;
}

/* How many bytes at the end of the held text may be the start of a stop string. */
static size_t held_back(const struct request *r)
{
    size_t most = 0;
    for (uint32_t i = 0; i < r->n_stops; i++) {
        const struct strbuf *stop = &r->stops[i];
        size_t n = stop->len - 1 < r->text.len ? stop->len - 1 : r->text.len;
        while (n > most && memcmp(r->text.data + r->text.len - n, stop->data, n) != 0)
            n--;
        if (n > most)
            most = n;
    }
    return most;
}

static void release(struct request *r, size_t n, struct strbuf *out)
{
    if (n == 0)
        return;
    strbuf_append(out, r->text.data, n);
    memmove(r->text.data, r->text.data + n, r->text.len - n);
    r->text.len -= n;
}

bool request_push_token(struct request *r, uint32_t token, struct strbuf *out)
{
    token_stream_push(&r->stream, token, &r->text);
    size_t at = 0;
    if (find_stop(r, &at)) {
        release(r, at, out);
        strbuf_clear(&r->text);
        return true;
    }
    release(r, r->text.len - held_back(r), out);
    return false;
}

void request_flush(struct request *r, struct strbuf *out)
{
    token_stream_flush(&r->stream, &r->text);
    size_t at = 0;
    release(r, find_stop(r, &at) ? at : r->text.len, out);
}
