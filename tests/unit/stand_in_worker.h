/* A stand-in for a worker, in the test's own process, for the tests of clients. It computes
 * nothing. It speaks the session protocol over the real sockets, and breaks it if the prompt
 * requests that.
 *
 * Prompts of Generate:
 *   count N     N Tokens, number i with token i and text "i ", then Done; keeps to the window. Of a
 *               prompt of 7 tokens 2 were cached, or 6 where another's answer is continued; Done
 * says 6
 *   hold        one Tokens, then nothing until Cancel
 *   quiet       nothing until Cancel
 *   compute     Progress 1 of 2 if it was asked for, then nothing until Cancel
 *   late        Done, and after it Tokens and another Done
 *   error       Error, code LIMIT, no retry        error-retry  Error, UNAVAILABLE, retry
 *   error-code  Error with an unknown code
 *   flood       more Tokens than the window allows
 *   routing N   Routing of N tokens, 1, 2, 3, 1, 2, ... an event: token t chose t and t + 1, with probabilities t / 1024 and
 *               1/2, and its gate input is t; then Done. routing N D: the D-th field of the first
 * event is wrong
 *   probable W  Progress 1 of 2; Tokens 5 and 6 with log-probabilities -0.5 and -1.5, and as the
 *               top_logprobs at each the tokens 0, 1, ... with -0, -1, ...; then Done with the end
 *               token 9, of log-probability -2.5, and the same top_logprobs. W 1 to 4: that one of
 *               logprobs, top_tokens, top_logprobs is short, or logprobs and progress come though
 *               nobody asked. W 5 to 7: as 1, 2 and 4, of the end token
 *   garbage     bytes that are no message          wrong-abi, wrong-id, wrong-body, no-body
 * Logits: row r has `vocab` values r * 1000 + column. Token 666 spoils the order of rows, 667 the
 * length of a row. Logprobs: that of token i is -i / 4, in events of 1, 2, 3, 1, 2, ... values; a
 * first token 666 or 667 as above, 668 one too many. Tokenize gives a token a byte, then 1000 for
 * the begin token and 2000 for special ones parsed, and Detokenize the bytes back; text "quiet" no
 * answer. <|im_start|> and <|im_end|> are one token each where special ones are parsed (and no 2000
 * then), or with marks_everywhere in any text. */
#ifndef MOED_TESTS_STAND_IN_WORKER_H
#define MOED_TESTS_STAND_IN_WORKER_H

#include "daemon/run_dir.h"
#include "ipc/channel.h"

#include "control.pb-c.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

enum { STAND_IN_SESSIONS = 64, STAND_IN_JOBS = 64, STAND_IN_VOCAB = 320 };
enum { STAND_IN_MARK = 300 }; /* <|im_start|>; the next is <|im_end|> */
enum { STAND_IN_WRONG = 10 }; /* the last D of the prompt "routing N D" */

struct stand_in_job {
    uint64_t id; /* 0: free */
    bool logits, logprobs, endless, cancelled;
    bool bad_order, bad_length, too_many;
    bool routing, gate;
    uint32_t hidden_every, hidden_phase, wrong; /* wrong: 0: nothing */
    uint32_t begin, next, total;                /* begin: of a continued answer */
    const char *text;                           /* the answer's; NULL: numbers */
    bool cut;                                   /* by max_tokens */
};

struct peer {
    struct stand_in *worker;
    struct channel *channel;
    int fd; /* the channel's */
    struct stand_in_job jobs[STAND_IN_JOBS];
    uint32_t sent, acknowledged, acks; /* events sent, acknowledged; Ack messages */
    uint32_t most_outstanding;
    uint32_t cancels, completes; /* completes: of the cancels */
    uint32_t generates, resumed; /* of those, that a worker that has gone was sent */
    uint64_t last_id;            /* of a Generate */
    bool disordered;             /* an older one came after it */
    bool closed;                 /* the library has gone */
    bool hung_up;                /* by stand_in_hang_up */
    Moed__V1__Generate *last;    /* as received */
};

struct stand_in {
    char run[RUN_DIR_BYTES];
    struct rpc_server *server;
    pthread_mutex_t lock; /* everything below, and what is in peers */
    uint32_t window;
    _Atomic uint64_t model; /* SessionAttachReply.model */
    unsigned n_peers;
    struct peer peers[STAND_IN_SESSIONS];
    char client[64];
    uint32_t pid;
    unsigned refused;    /* attempts to attach */
    const char *refusal; /* answer attaching with this Error */
    bool closes;         /* the next session's channel closes at once */
    bool babbles;        /* and brings a length that no message has */
    const char *chat_template;
    bool marks_everywhere;
    _Atomic bool stalls;      /* it reads nothing */
    _Atomic unsigned stalled; /* messages that wait for that to end */
    bool knows_no_rendered;   /* Generate.rendered: as a worker of an earlier release */
    uint32_t error_code;      /* to prompts of ids: this Error, no retry; 0: none */
    const char *answer;       /* to prompts of ids: this text, in tokens of answer_bytes bytes */
    uint32_t answer_bytes;
    uint32_t answer_tokens; /* in an event; 0: one */
};

static inline void pause_ms(long ms)
{
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL);
}

void stand_in_start(struct stand_in *w, const char *run, uint32_t window);
void stand_in_stop(struct stand_in *w);

/* Lets no more frontends attach. */
void stand_in_refuse(struct stand_in *w, bool refuses);

/* Close a session's channel, as a worker that is killed does. Waits for the channel: the frontend
 * may know of its attaching before we do. */
void stand_in_hang_up(struct stand_in *w, unsigned session);
/* Closes the channel that a session has now, whose first attempt to attach was `first`. Under load
 * an attempt that it gave up may be answered after the one that it uses. */
void stand_in_hang_up_from(struct stand_in *w, unsigned first);
/* The same while the stand-in stalls: it gets no more messages of the session. */
void stand_in_cut(struct stand_in *w, unsigned session);

unsigned stand_in_peers(struct stand_in *w);
unsigned stand_in_refused(struct stand_in *w);
/* The session has a request of this id that runs. */
bool stand_in_has(struct stand_in *w, unsigned session, uint64_t id);
/* A copy of a session's counters. */
struct peer stand_in_look(struct stand_in *w, unsigned session);

#endif
