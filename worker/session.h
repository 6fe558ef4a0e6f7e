/* Frontends: their private channels, and the messages on them. Tokenising and questions about the model are
 * answered on the channel's own thread; generating, logits and logprobs go to the engine. */
#ifndef MOED_WORKER_SESSION_H
#define MOED_WORKER_SESSION_H

#include "base/error.h"
#include "model/pool_map.h"
#include "request.h"
#include "tokenizer/tokenizer.h"

#include "session.pb-c.h"

/* Events (Tokens, LogitsRow, Logprobs, Routing) a frontend may have unacknowledged: beyond it its requests pause. */
#define SESSION_WINDOW 64

struct sessions;
struct engine;

struct session_model { /* facts for ModelReply and limits */
    const struct pool_map *map;
    const struct tokenizer *tokenizer;
    const char *chat_template; /* "" where there is none */
    const char *device;
    uint32_t context;
};

enum error_code sessions_new(const char *run, const struct session_model *model,
                             struct sessions **out, struct error *e);
void sessions_set_engine(struct sessions *s, struct engine *engine); /* before the first attach */
/* Closes every channel. The engine must have stopped. Takes NULL. */
void sessions_free(struct sessions *s);
uint32_t sessions_count(struct sessions *s);

/* A new frontend, that calls itself client: *url is where it finds its channel. Any thread. */
enum error_code sessions_attach(struct sessions *s, const char *client, uint32_t pid, char *url,
                                size_t url_bytes, struct error *e);

/* For the engine. Sending to a frontend that has gone does nothing; one that cannot be sent to is dropped. Tokens,
 * logits, logprobs and routing need a credit taken before. */
void frontend_send_tokens(struct frontend *f, uint64_t id, const uint32_t *tokens, size_t n_tokens,
                          const struct strbuf *text);
void frontend_send_logits(struct frontend *f, uint64_t id, uint32_t row, const float *logits,
                          uint32_t n);
void frontend_send_logprobs(struct frontend *f, uint64_t id, uint32_t first, const float *logprobs,
                            uint32_t n);
void frontend_send_routing(struct frontend *f, uint64_t id, const struct recording_part *part);
void frontend_send_done(struct frontend *f, const struct request *r, enum finish_reason reason);
void frontend_send_error(struct frontend *f, uint64_t id, enum error_code code, const char *text);
/* Take the right to send one event; false while the frontend is behind. One that
 * was not used is given back. */
bool frontend_take_credit(struct frontend *f);
void frontend_return_credit(struct frontend *f);
/* The engine has no more requests of a frontend that was closed: free it. */
void frontend_release(struct frontend *f);

#endif
