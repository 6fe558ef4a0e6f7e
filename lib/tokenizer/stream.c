/* Streaming detokenizer; see stream.h. */
#include "tokenizer/stream.h"

#include "base/utf8.h"
#include "tokenizer/piece.h"

#include <string.h>

void token_stream_init(struct token_stream *s, const struct tokenizer *t, unsigned flags)
{
    *s = (struct token_stream){
        .tokenizer = t,
        .flags = flags,
        .at_start = flags & TOKEN_STREAM_WHOLE_TEXT,
    };
}

bool token_stream_push(struct token_stream *s, uint32_t id, struct strbuf *out)
{
    if (id >= tokenizer_vocab_size(s->tokenizer))
        return false;
    size_t begin = out->len;
    token_stream_flush(s, out);
    (void)tokenizer_piece_at(s->tokenizer, id, s->flags & TOKEN_STREAM_SPECIAL, &s->at_start, out);
    if (!(s->flags & TOKEN_STREAM_WHOLE_TEXT))
        s->at_start = false;
    if (out->failed || out->len == begin)
        return true;
    s->kept_bytes = utf8_incomplete_tail(out->data + begin, out->len - begin);
    out->len -= s->kept_bytes;
    memcpy(s->kept, out->data + out->len, s->kept_bytes);
    out->data[out->len] = 0;
    return true;
}

void token_stream_flush(struct token_stream *s, struct strbuf *out)
{
    strbuf_append(out, s->kept, s->kept_bytes);
    s->kept_bytes = 0;
}
