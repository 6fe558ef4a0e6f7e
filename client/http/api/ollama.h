/* The part of Ollama's API that its clients need: GET /api/version, /api/tags, /api/ps;
 * POST /api/show, /api/chat, /api/generate. */
#ifndef MOED_HTTP_OLLAMA_H
#define MOED_HTTP_OLLAMA_H

#include "client/http/api/answer.h"
#include "client/http/server/exchange.h"

#include <time.h>

void handle_ollama_root(struct exchange *x);
void handle_ollama_version(struct exchange *x);
void handle_ollama_tags(struct exchange *x);
void handle_ollama_ps(struct exchange *x);
void handle_ollama_show(struct exchange *x);
void handle_ollama_chat(struct exchange *x);
void handle_ollama_generate(struct exchange *x);

/* For tests. */
extern const struct dialect ollama_chat_dialect;
bool parse_ollama_chat(struct ask *ask, const char *body, size_t len, struct problem *p);
bool parse_ollama_generate(struct ask *ask, const char *body, size_t len, struct problem *p);

/* "2026-01-31T12:00:00Z" */
void ollama_time(time_t at, char out[24]);

#endif
