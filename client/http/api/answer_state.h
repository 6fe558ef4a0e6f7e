/* The state of an answer, its choices and their budgets, and the dialect that writes it; answer.h
 * says how an answer goes on. */
#ifndef MOED_HTTP_ANSWER_STATE_H
#define MOED_HTTP_ANSWER_STATE_H

#include "client/http/api/app.h"
#include "client/http/api/ask.h"
#include "client/http/api/custom_tool.h"
#include "client/http/api/output.h"
#include "client/http/api/scores.h"
#include "client/http/api/structure.h"
#include "client/http/api/text_place.h"
#include "client/http/server/exchange.h"

#include "base/strbuf.h"

#include <time.h>

struct answer;

/* What has come of an answer before its prompt's log-probabilities, which stand before it. */
struct held {
    struct strbuf text;
    struct scores scores;
    uint32_t tokens;
    bool done; /* the answer is */
};

/* What the worker does about the answer's reasoning; see worker_limit.h. */
struct worker_limit {
    struct moed_reasoning_limit options; /* tokens 0: nothing */
    const char *ends[4];
    uint32_t *forced, *forbidden; /* owned */
};

/* See budget.h. */
struct budget {
    struct job job; /* first */
    struct choice *choice;
    /* The next request is there; or there is none, as choice->result says; or *p says why it
     * failed. On the loop, at the end of the job. */
    void (*on_resumed)(struct choice *c, const struct problem *p);
    uint32_t *tokens; /* of the answer so far; owned */
    size_t count, capacity;
    size_t forced; /* of them: by the worker */
    bool failed;   /* no memory for them */
    bool reached;
    bool resumed;
    struct moed_result before; /* of the cancelled request; its tokens are `count` */
    /* the job's */
    const char *end;              /* what ends the reasoning */
    uint32_t end_tokens;          /* how many tokens that is */
    enum moed_reason stop;        /* why nothing follows; NONE: the request goes on */
    struct moed_request *request; /* which goes on */
    struct problem problem;
};

struct choice {
    struct watch watch; /* first: of the request's descriptor */
    struct answer *answer;
    struct moed_request *request;
    unsigned index, prompt; /* of the choice; of its prompt */
    struct output output;
    struct budget budget;
    struct scores scores;
    struct text_place place; /* in the answer's text, behind the last token of `scores` */
    /* Bytes: of the texts of all tokens; of the text that has come. The rest is held back, and is
     * dropped where it is a stop string. */
    uint32_t text_of_tokens, text_come;
    struct watch scoring; /* of the prompt's log-probabilities, which the answer repeats */
    /* The one that computes them, for all choices of the prompt; NULL: none, or another choice's */
    struct moed_request *score_request;
    /* The prompt has so many tokens at its beginning in common with that of this choice, whose
     * scores it is to get; 0: none, or it has them. */
    size_t n_shared;
    unsigned shared_from;
    struct scores early; /* of the prompt behind these, until they are there */
    bool awaits_scores;  /* the answer waits in `held` until they are there */
    struct held held;
    bool scored;            /* the prompt's log-probabilities were computed, */
    uint32_t scored_cached; /* but for as many tokens, which the cache had */
    struct moed_result result;
    uint64_t tokens;            /* so far */
    uint64_t first_ns, last_ns; /* when tokens came; 0: none yet */
    bool lines;                 /* the answer has an end of line */
    bool late;                  /* it took longer than ask.predict_ms */
    bool over;                  /* the one call that was allowed was complete before the end */
    bool done;
    bool counts_prompt; /* the metrics have the prompt's tokens from it */
};

/* How an API writes answers. Each function appends to answer->x->out. */
struct dialect {
    const char *stream_type; /* Content-Type of a stream */
    bool has_end_token;      /* the scores have the token that ended the answer, too */
    enum scores_form scores; /* of a whole answer */
    struct part_writer parts;
    void (*begin)(struct answer *a); /* of a stream */
    /* of a stream: how far the prompt is; NULL: the API has no way to say it */
    void (*progress)(struct choice *c, const struct moed_progress *progress);
    void (*scored)(struct choice *c);     /* of a stream: the prompt has its scores; may be NULL */
    void (*end_choice)(struct choice *c); /* of a stream */
    void (*end)(struct answer *a);        /* of a stream */
    void (*whole)(struct answer *a);      /* not of a stream */
    void (*fail)(struct answer *a, const struct problem *p); /* in the middle of a stream */
    void (*keep_alive)(struct answer *a);                    /* of a stream; NULL: nothing */
};

struct answer {
    struct job job; /* first */
    struct deployments_waiter waiter;
    struct exchange *x;
    struct app *app;
    const struct dialect *dialect;
    struct ask ask;
    struct deployment *deployment; /* held */
    unsigned replacements;         /* of the deployment's model, when the answer began */
    char id[40];                   /* "chatcmpl-..." */
    char model[MODEL_NAME_BYTES];
    char fingerprint[10]; /* "-" and 8 digits: what computes the answer, and how; or "" */
    time_t created;
    uint64_t found_ns;             /* when the deployment was there: a model may have been loaded */
    uint64_t cache_salt;           /* of the request's API key; 0: none */
    uint64_t client;               /* bodies_client */
    struct chat_rendered chat;     /* of a conversation: how its answer is read */
    struct structure structure;    /* what binds the answer */
    struct worker_limit limit;     /* of its reasoning */
    struct vocabulary *vocabulary; /* for log-probabilities; else NULL */
    struct choice *choices;
    unsigned n_choices, n_running;
    bool headed;                 /* the HTTP head of the stream was sent */
    bool begun;                  /* and what the API begins a stream with */
    bool only_echo;              /* nothing is generated */
    bool starting;               /* the first job runs: the choices are its own */
    unsigned jobs;               /* that run: the answer must not be freed */
    unsigned n_events;           /* of a dialect that numbers them */
    struct custom_input custom;  /* of a dialect with custom tools: of the call that is open */
    struct answer *next, **link; /* in app->first */
    struct problem problem;
};

#endif
