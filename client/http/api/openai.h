/* What OpenAI's chat and text completions share. */
#ifndef MOED_HTTP_OPENAI_H
#define MOED_HTTP_OPENAI_H

#include "client/http/api/answer.h"

/* "stop", "length" or "tool_calls". */
const char *openai_finish_reason(const struct choice *c);
/* ,"usage":{...} */
void openai_usage(const struct answer *a, struct strbuf *out);
/* The same in a chunk: null, or the usage so far; nothing where it was not asked for. */
void openai_chunk_usage(const struct answer *a, struct strbuf *out);
/* A stream's end: the usage, where it was asked for, in a chunk of `object`; then [DONE]. */
void openai_stream_end(struct answer *a, const char *object);
/* {"id":...,"object":...,"created":...,"model":... */
void openai_head(const struct answer *a, const char *object, struct strbuf *out);
/* An error as an event; the stream ends after it. */
void openai_stream_fail(struct answer *a, const struct problem *p);
void openai_keep_alive(struct answer *a);

/* The handlers. */
void handle_chat_completions(struct exchange *x);
void handle_completions(struct exchange *x);

/* The parameters, for tests. */
extern const struct dialect chat_dialect, completion_dialect;
bool parse_chat(struct ask *ask, const char *body, size_t len, struct problem *p);
bool parse_completion(struct ask *ask, const char *body, size_t len, struct problem *p);

#endif
