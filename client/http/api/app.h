/* What the handlers share. */
#ifndef MOED_HTTP_APP_H
#define MOED_HTTP_APP_H

#include "client/http/api/answer_metrics.h"
#include "client/http/api/loose_schemas.h"
#include "client/http/model/deployments.h"
#include "client/http/server/server.h"
#include "client/http/server/turns.h"
#include "client/http/watch/watch.h"

struct daemon;
struct answer;

/* What chats call the reasoning of an answer. */
enum reasoning_field {
    REASONING_FIELD_CONTENT, /* reasoning_content, as DeepSeek and llama-server */
    REASONING_FIELD_SHORT,   /* reasoning, as OpenRouter and vLLM */
    REASONING_FIELD_BOTH
};

struct app {
    struct server *server;
    struct daemon *daemon;
    struct deployments deployments;
    struct watches watches;
    struct job_queue processes;   /* its thread asks the deployments' processes */
    struct turns bodies;          /* its thread parses large bodies */
    struct turns loosening;       /* its thread loosens schemas */
    struct loose_schemas schemas; /* that thread's */
    struct job_queue scrapes;     /* its thread asks them for their metrics */
    struct answer_metrics metrics;
    enum reasoning_field reasoning_field;
    uint64_t answers_max; /* at once */
    bool share_cache;     /* API keys find each other's prompts in the KV cache */
    unsigned answers;     /* that run */
    time_t started;       /* the server */
    struct answer *first; /* of them */
};

static inline struct app *app_of(const struct exchange *x)
{
    return x->server->app;
}

/* Requests that run, or whose bodies another thread reads: at most answers_max. */
static inline unsigned app_busy(const struct app *app)
{
    return app->answers + app->bodies.count + app->loosening.count;
}

#endif
