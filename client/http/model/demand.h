/* Models that moed-models loads when a request names one (moed-models, --models DIR). This module
 * asks moed-models on a thread of its own, keeps what it has said, and repeats requests for models
 * that are not up yet. All functions are for the loop's thread. */
#ifndef MOED_HTTP_DEMAND_H
#define MOED_HTTP_DEMAND_H

#include "client/http/server/jobs.h"
#include "client/http/server/problem.h"

#include <stdbool.h>
#include <stdint.h>

enum { DEMAND_MODELS_MOST = 512, DEMAND_ID_BYTES = 96, DEMAND_NAME_BYTES = 40 };

enum demand_state { DEMAND_OFF, DEMAND_STARTING, DEMAND_UP, DEMAND_STOPPING, DEMAND_FAILED };

struct demand_model {
    char id[DEMAND_ID_BYTES];           /* for clients */
    char deployment[DEMAND_NAME_BYTES]; /* where it runs */
    char architecture[32], name[96], quantization[16];
    enum demand_state state;
    bool own;   /* loaded for a request */
    bool fills; /* its vocabulary has the tokens for fill-in-the-middle */
    uint64_t parameters, file_bytes;
    uint32_t context;
    double expires_s; /* until it is unloaded if nobody uses it; below 0: never */
    uint64_t told_ns; /* when moed-models said so */
};

/* A caller that waits: for a model, or for the list. */
struct demand_wait {
    char model[DEMAND_ID_BYTES]; /* empty: for the list */
    bool drops;                  /* it wants the model to be unloaded */
    bool has_keep;
    double keep_s; /* how long it stays loaded without requests; below 0: for ever */
    void (*done)(struct demand_wait *w);
    struct problem problem; /* at the end: why not; status 0: the model is up, or unloaded */
    uint64_t since_ns;
    struct demand_wait *next;
    bool waits;
};

struct demand_call;

struct demand {
    bool enabled;
    struct loop *loop;
    const char *run;
    struct job_queue queue;
    struct watch timer; /* the next repetition */
    struct demand_call *call;
    bool in_flight, again; /* the call; another one is due behind it */
    struct demand_wait *waits;
    struct demand_model *models; /* [DEMAND_MODELS_MOST] */
    unsigned count;
};

/* run: of the moed-models that is asked. Before this call nothing is loaded on demand. */
enum error_code demand_start(struct demand *d, struct loop *loop, const char *run, struct error *e);
void demand_stop(struct demand *d);

/* Asks for w->model, or for the list. Calls w->done later, once. */
void demand_ask(struct demand *d, struct demand_wait *w);
void demand_cancel(struct demand *d, struct demand_wait *w); /* takes one that does not wait */

/* By id or deployment; NULL: moed-models has not told of such a model. */
const struct demand_model *demand_find(const struct demand *d, const char *name);
/* The deployment, which may be of a person, perhaps has another model: none of the folder is known
 * to be up there until moed-models says so again. */
void demand_forget_up(struct demand *d, const char *deployment);

#endif
