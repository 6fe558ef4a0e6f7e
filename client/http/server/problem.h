/* A failed request: its HTTP status, and its body in the shape of the API that was called.
 *
 *   OpenAI     {"error": {"message", "type", "param", "code"}}
 *   Anthropic  {"type": "error", "error": {"type", "message"}}
 *   Ollama     {"error": "message"} */
#ifndef MOED_HTTP_PROBLEM_H
#define MOED_HTTP_PROBLEM_H

#include "base/error.h"
#include "base/strbuf.h"

#include <stdbool.h>

enum http_api { HTTP_API_OPENAI, HTTP_API_ANTHROPIC, HTTP_API_OLLAMA };

struct problem {
    int status;         /* 0: no problem */
    const char *code;   /* "model_not_found"; NULL: none. A literal */
    char parameter[64]; /* the request's parameter; empty: none */
    unsigned retry_s;   /* Retry-After; 0: the same request will fail again */
    bool busy;          /* nothing is wrong: too many requests run or wait */
    char message[ERROR_TEXT_BYTES];
};

/* Fills *p and returns false, so that a parser can `return problem_set(...)`. */
#define problem_set(p, status, ...) (problem_fill((p), (status), __VA_ARGS__), false)
void problem_fill(struct problem *p, int status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* The same for one of the request's parameters. */
bool problem_refuse(struct problem *p, int status, const char *parameter, const char *message);

/* Appends the body. */
void problem_body(const struct problem *p, enum http_api api, struct strbuf *out);

#endif
