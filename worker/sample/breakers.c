/* DRY's breakers; see breakers.h. */
#include "breakers.h"

#include <string.h>

void breakers_add_usual(struct breakers *b)
{
    static const char *const usual[] = {"\n", ":", "\"", "*"};
    for (size_t i = 0; i < sizeof usual / sizeof usual[0]; i++)
        breakers_add(b, usual[i], 1);
}

bool breakers_add(struct breakers *b, const char *text, size_t n)
{
    if (n == 0 || n > BREAKER_BYTES || b->n == BREAKERS_MOST)
        return false;
    memcpy(b->texts[b->n], text, n);
    b->lengths[b->n++] = n;
    return true;
}

void breakers_fini(struct breakers *b)
{
    strbuf_fini(&b->text);
    strbuf_fini(&b->piece);
}

static bool has_breaker(const struct breakers *b, const struct strbuf *text)
{
    for (uint32_t i = 0; i < b->n; i++)
        if (text->len && memmem(text->data, text->len, b->texts[i], b->lengths[i]))
            return true;
    return false;
}

/* Forgets all but what may be the start of a breaker that goes on in the next token. */
static void keep_end(struct breakers *b)
{
    size_t most = 0;
    for (uint32_t i = 0; i < b->n; i++)
        most = b->lengths[i] - 1 > most ? b->lengths[i] - 1 : most;
    if (b->text.len <= most)
        return;
    memmove(b->text.data, b->text.data + b->text.len - most, most);
    b->text.len = most;
}

void breakers_follow(struct breakers *b, const struct tokenizer *t, const uint32_t *tokens,
                     uint32_t n_tokens)
{
    b->tokenizer = t;
    for (; b->n_tokens < n_tokens; b->n_tokens++) {
        tokenizer_piece(t, tokens[b->n_tokens], true, &b->text);
        b->n_unbroken++;
        if (has_breaker(b, &b->text)) {
            b->n_unbroken = 0;
            strbuf_clear(&b->text);
        } else {
            keep_end(b);
        }
    }
}

bool breakers_has(void *breakers, uint32_t token)
{
    struct breakers *b = breakers;
    strbuf_clear(&b->piece);
    tokenizer_piece(b->tokenizer, token, true, &b->piece);
    return has_breaker(b, &b->piece);
}
