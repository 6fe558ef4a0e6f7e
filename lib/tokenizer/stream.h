/* Token ids to text as they come, whole UTF-8 characters at a time: the bytes of a character that
 * is not complete yet are kept for the next token. One stream a request, one thread at a time;
 * borrows the tokenizer and owns no memory.
 */
#ifndef MOED_TOKENIZER_STREAM_H
#define MOED_TOKENIZER_STREAM_H

#include "tokenizer/tokenizer.h"

enum {
    TOKEN_STREAM_SPECIAL = 1,    /* the texts of control tokens too */
    TOKEN_STREAM_WHOLE_TEXT = 2, /* the ids are a whole text, not the continuation of a prompt: the
                                    space that encoding puts in front is taken off, as
                                    tokenizer_decode does */
};

struct token_stream {
    const struct tokenizer *tokenizer;
    unsigned flags;
    bool at_start;
    char kept[3]; /* the start of a character */
    size_t kept_bytes;
};

void token_stream_init(struct token_stream *s, const struct tokenizer *t, unsigned flags);

/* Append to *out what can be shown after id. False when id is not in the vocabulary (nothing
 * changes). Out of memory shows in out->failed. */
bool token_stream_push(struct token_stream *s, uint32_t id, struct strbuf *out);

/* The end: append what was kept (bytes that did not become a character). The stream can go on from
 * there. */
void token_stream_flush(struct token_stream *s, struct strbuf *out);

#endif
