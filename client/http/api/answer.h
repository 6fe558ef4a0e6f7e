/* The answer to a request: one or several choices, generated at once, and the dialect that writes
 * them as its API does.
 *
 *     resolving  which deployment has the model
 *     starting   on the deployment's thread: render, tokenize, submit
 *     running    events of the choices come
 *     over
 *
 * An answer outlives its exchange while a job has it. `x` is NULL once the exchange is gone. */
#ifndef MOED_HTTP_ANSWER_H
#define MOED_HTTP_ANSWER_H

#include "client/http/api/app.h"
#include "client/http/api/ask.h"
#include "client/http/api/budget.h"
#include "client/http/api/output.h"
#include "client/http/api/scores.h"
#include "client/http/api/structure.h"
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

struct choice {
    struct watch watch; /* first: of the request's descriptor */
    struct answer *answer;
    struct moed_request *request;
    unsigned index, prompt; /* of the choice; of its prompt */
    struct output output;
    struct budget budget;
    struct scores scores;
    size_t score_offset;  /* characters of the text before the next score that is written */
    struct watch scoring; /* of the prompt's log-probabilities, which the answer repeats */
    struct moed_request
        *score_request; /* NULL: none; the answer waits in `held` until it is done */
    struct held held;
    struct moed_result result;
    uint64_t tokens; /* so far */
    uint64_t first_ns;
    bool done;
};

/* How an API writes answers. Each function appends to answer->x->out. */
struct dialect {
    const char *stream_type;          /* Content-Type of a stream */
    bool keeps_text;                  /* a stream's end repeats it */
    bool whole_calls;                 /* a stream has a call only whole */
    void (*begin)(struct answer *a);  /* of a stream */
    void (*scored)(struct choice *c); /* of a stream: the prompt has its scores; may be NULL */
    /* Parts of a stream, in order; part_begin and part_end may be NULL. */
    void (*part_begin)(struct choice *c, const struct part *part);
    void (*part_text)(struct choice *c, const struct part *part, const char *text, size_t len);
    void (*part_end)(struct choice *c, const struct part *part);
    void (*end_choice)(struct choice *c);                    /* of a stream */
    void (*end)(struct answer *a);                           /* of a stream */
    void (*whole)(struct answer *a);                         /* not of a stream */
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
    struct deployment *deployment;
    char id[40]; /* "chatcmpl-..." */
    char model[MODEL_NAME_BYTES];
    time_t created;
    struct chat_rendered chat;     /* of a conversation: how its answer is read */
    struct structure structure;    /* what binds the answer */
    struct vocabulary *vocabulary; /* for log-probabilities and budgets; else NULL */
    struct choice *choices;
    unsigned n_choices, n_running;
    bool begun;                  /* the stream's head was sent */
    bool only_echo;              /* nothing is generated */
    bool starting;               /* the first job runs: the choices are its own */
    unsigned jobs;               /* that run: the answer must not be freed */
    unsigned n_events;           /* of a dialect that numbers them */
    struct answer *next, **link; /* in app->first */
    struct problem problem;
};

/* Starts the answer; takes *ask. The exchange is replied to later. id_prefix: "chatcmpl-". */
void answer_start(struct exchange *x, struct ask *ask, const struct dialect *dialect,
                  const char *id_prefix);

/* Sums over the choices. */
struct answer_usage {
    uint64_t in, cached, out, reasoning; /* reasoning: of `out` */
};
struct answer_usage answer_usage(const struct answer *a);

/* It ended by itself, with calls of tools that are all complete. */
bool choice_has_calls(const struct choice *c);
/* The answer ended because no more tokens were allowed, or fit. */
bool choice_is_cut(const struct choice *c);

/* Between answer.c and answer_start.c: what a job does once the deployment is known, and what is
 * done after it. */
void answer_start_work(struct job *job);
/* What a choice asks the worker for. */
struct moed_generate_options answer_options(const struct answer *a, const struct choice *c);
/* A choice's next request is there; or there is none, as c->result says; or *p says why it failed.
 * Called by the end of its job. */
void answer_resumed(struct choice *c, const struct problem *p);
/* Watches the requests of the choices. False: a->problem is set. */
bool answer_watch(struct answer *a);
bool answer_watch_choice(struct choice *c);
void answer_on_choice(struct watch *w, uint32_t events);
void answer_on_score(struct watch *w, uint32_t events);

/* No running deployment has the model. */
void problem_no_model(struct problem *p, const char *model);
/* The problem that an error of libmoed is to a client. */
void problem_from_moed(struct problem *p, const struct moed_error *error);

#endif
