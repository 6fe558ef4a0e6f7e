/* Converts token ids to text as they arrive, in whole UTF-8 characters: the stream keeps the bytes
 * of an incomplete character for the next token. One stream per request, one thread at a time. A
 * stream borrows the tokenizer and owns no memory. */
#ifndef MOED_TOKENIZER_STREAM_H
#define MOED_TOKENIZER_STREAM_H

#include "tokenizer/tokenizer.h"

enum {
    TOKEN_STREAM_SPECIAL = 1,    /* texts of control tokens too */
    TOKEN_STREAM_WHOLE_TEXT = 2, /* the ids are a whole text, not the continuation of a prompt:
                                    strip the leading space, as tokenizer_decode does */
};

struct token_stream {
    const struct tokenizer *tokenizer;
    unsigned flags;
    bool at_start;
    char kept[3]; /* the first bytes of a character */
    size_t kept_bytes;
};

void token_stream_init(struct token_stream *s, const struct tokenizer *t, unsigned flags);

/* Appends the characters that are complete after id to *out. False: id is not in the vocabulary,
 * and nothing changes. Out of memory: sets out->failed. */
bool token_stream_push(struct token_stream *s, uint32_t id, struct strbuf *out);

/* Appends the kept bytes, which did not become a character. The stream can go on afterwards. */
void token_stream_flush(struct token_stream *s, struct strbuf *out);

#endif
