/* A request that a deployment's thread of questions answers at once: no events, no stream. */
#ifndef MOED_HTTP_QUESTION_H
#define MOED_HTTP_QUESTION_H

#include "client/http/api/app.h"
#include "client/http/api/ask.h"
#include "client/http/model/vocabulary.h"

struct question {
    struct turn turn; /* first */
    struct deployments_waiter waiter;
    struct exchange *x;            /* NULL: the client has left */
    struct deployment *deployment; /* held */
    struct ask ask;
    const struct question_kind *kind;
    bool takes_turn;      /* it waits or runs on the deployment's thread */
    struct job_queue *in; /* whose job it is else; NULL: none */
    struct problem problem;
    /* what `work` has found; freed with moed_free */
    uint32_t *tokens;
    size_t token_count;
    char *text;
    size_t text_bytes;
    struct vocabulary *vocabulary; /* NULL: none; released */
    struct strbuf text_json;       /* what `work` has written of the body */
    uint64_t parallel;             /* requests at once; 0: not known */
};

struct question_kind {
    /* On the deployment's thread of questions, attached. What it finds may be megabytes: then it
     * writes the JSON text too, since the loop's thread must not take so long. NULL: nothing to ask
     * it. */
    enum moed_code (*work)(struct question *q, struct moed_error *error);
    /* On the loop's thread: appends the body to q->x->out. */
    void (*write)(struct question *q);
    /* The same for a model of the folder that is not loaded, which then stays so. NULL: the
     * question loads the model. */
    void (*write_unloaded)(struct question *q, const struct demand_model *m);
    /* After `work`, on the thread that asks the deployment's processes, for which others need not
     * wait. NULL: nothing to ask them. */
    void (*measure)(struct question *q);
};

/* Takes *ask. ask->model names the deployment. */
void question_start(struct exchange *x, struct ask *ask, const struct question_kind *kind);

/* POST /tokenize, /detokenize, /apply-template; GET /props, /tokenizer_info. */
void handle_tokenize(struct exchange *x);
void handle_detokenize(struct exchange *x);
void handle_apply_template(struct exchange *x);
void handle_props(struct exchange *x);
void handle_tokenizer_info(struct exchange *x);

/* Work that others share: renders the conversation into q->tokens. */
enum moed_code question_render(struct question *q, struct moed_error *error);

#endif
