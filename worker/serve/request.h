/* A request from engine_submit to its end: what is asked for, and how far the engine has come. Its
 * results go to its sink (response_sink.h).
 *
 * The submitter fills in a request and hands it to engine_submit, which takes it. From then on all
 * of it is the engine thread's, except `cancelled` and `complete`. */
#ifndef MOED_WORKER_SERVE_REQUEST_H
#define MOED_WORKER_SERVE_REQUEST_H

#include "worker/sample/grammar_cursor.h"
#include "base/strbuf.h"
#include "worker/sample/breakers.h"
#include "draft.h"
#include "expected_answer.h"
#include "reasoning_limit.h"
#include "response_sink.h"
#include "worker/sample/sampler.h"
#include "tokenizer/stream.h"
#include "tokenizer/tokenizer.h"
#include "worker/forward/recording.h"
#include "worker/kv/prefix_cache.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum request_kind { REQUEST_GENERATE, REQUEST_LOGITS, REQUEST_LOGPROBS };

/* Who gets a slot first. The values of Moed__V1__Generate__Priority. */
enum request_priority { PRIORITY_INTERACTIVE, PRIORITY_BATCH };

#define REQUEST_MAX_STOPS  128
#define REQUEST_STOP_BYTES (64u << 10) /* of all of them together */
/* The most probable tokens that log-probabilities may name at each place. */
#define REQUEST_MAX_TOP 64
/* Snapshots of its state that a prompt may want: states.c. */
#define REQUEST_SNAPSHOTS 3
/* Tokens with log-probabilities that one event may have. */
#define REQUEST_EVENT_LOGPROBS 64

struct queue_share;
struct state_snapshot;

struct request {
    struct request *next; /* in the engine's inbox or in one of its lists */
    const struct response_sink *sink;
    void *sink_arg;
    enum request_kind kind;

    /* What is asked for; fixed once submitted. */
    struct sampling sampling;
    struct sampler_bias *biases; /* [n_biases]; where reasoning is limited, with space for those of
                                    the forbidden tokens */
    uint32_t n_biases;
    const struct sampler_guard *guard; /* what may come next; NULL: anything */
    struct grammar_cursor *grammar;    /* owned; what the guard asks. NULL: none */
    uint32_t max_tokens;               /* 0: no limit but the context */
    uint32_t min_tokens;               /* the answer does not end before as many */
    uint32_t max_drafts;               /* of a step; UINT32_MAX: no limit of its own */
    uint32_t *ends;                    /* [n_ends]: of min_tokens, what may not come before */
    uint32_t n_ends;
    struct token_list stop_tokens;     /* these end the answer, as the model's end tokens do */
    bool ignore_end;                   /* an end-of-generation token is a token as any other */
    bool stepwise;                     /* one token of the prompt at a time */
    bool prompt_only;                  /* a Generate without an answer */
    struct reasoning_limit *reasoning; /* owned; NULL: no limit */
    struct expected_answer *expected;  /* owned; what the answer is expected to be. NULL: none */
    bool progress;                     /* report how far the prompt is */
    bool logprobs;  /* of the answer's tokens; a Logprobs request has them anyway */
    uint32_t n_top; /* most probable tokens at each place */
    struct strbuf stops[REQUEST_MAX_STOPS];
    uint32_t n_stops;
    uint32_t n_prompt;
    /* Positions that are computed before the next token is chosen, from 0 on: the prompt's, and
     * those of an answer that is continued. */
    uint32_t n_prefill;
    uint64_t submitter;  /* requests of one submitter have the same */
    uint64_t process;    /* requests of one process have the same: slots go round by it, */
    uint64_t client;     /* and then by the clients of each (queue.h) */
    uint64_t cache_salt; /* it shares conversations with requests of the same one; 0: none */
    enum request_priority priority;
    bool resumed;                /* a worker that has gone was sent it */
    uint64_t deadline_ns;        /* of clock_ns; 0: none. Not started by then, it is refused */
    struct recording *recording; /* owned; NULL: not asked for */

    _Atomic bool cancelled; /* engine_cancel and engine_complete set it, from any thread */
    _Atomic bool complete;  /* cancelled: the submitter has all that it wants */

    /* Of queue.c. */
    struct request_place {
        struct request **link;      /* what points at it in the queue */
        struct queue_share *share;  /* its client's; NULL: it has not been in the queue */
        struct queue_share *spare;  /* owned: memory for shares; linked by next */
        struct request *lane_next;  /* in its client's lane, or among those set aside */
        struct request **lane_link; /* what points at it there */
        uint64_t arrival;           /* counts those that came into the queue */
        bool aside;
    } place;

    /* Progress. */
    int64_t slot;             /* of the KV cache; -1: waiting */
    uint64_t serial;          /* counts the requests that got a slot */
    struct token_list tokens; /* prompt, then answer */
    uint32_t n_past;          /* positions in the cache */
    uint32_t n_found;         /* of these, what it began with when it got its slot */
    uint64_t seen_changes; /* of the prefix cache, when it last looked there (shared_prompts.c) */
    uint32_t n_most;       /* positions that it may need; request_reserve */
    struct kv_path path;   /* its pages; path.n of n_past are shared with the prefix cache */
    uint32_t n_put;        /* pages of the path that are in the slot */
    /* Of states.c: snapshots of its state that its prompt takes on the way. position 0: none. */
    struct request_snapshot {
        uint32_t position;
        struct state_snapshot *place; /* while a batch computes it; NULL: none */
    } snapshots[REQUEST_SNAPSHOTS];
    /* Positions of the prompt that the prefix cache had, the most at any time that it opened its
     * pages; what it finds again after a suspension does not count. */
    uint32_t n_cached;
    uint64_t waits_for; /* waiting: the serial of a request that computes its prompt; 0: none */
    /* waiting for pages: requests with this serial or a higher one have overtaken it; 0: it has not
     * waited for pages */
    uint64_t overtaken_from;
    struct request *follows; /* of shared_prompts.c, while a step chooses its rows; NULL: none */
    uint32_t n_pages_lost;   /* how often its pages were taken from it while it ran */
    /* It begins with what the prefix cache has and leaves its pages there, so it can be suspended
     * and begin again. False: what it wants is in the computing of each position. */
    bool shares_pages;
    bool shares_batch; /* its prompt, with others' */
    float mirostat_mu;
    struct breakers breakers;
    struct draft *draft;            /* owned; NULL: nothing is drafted */
    uint32_t n_drafted, n_accepted; /* tokens: drafts computed; of these, right */
    struct token_stream stream;
    struct strbuf text;   /* decoded, but held back: it may be the start of a stop string */
    uint32_t token_bytes; /* of the text of the last token */
    uint32_t n_generated;
    uint64_t grammar_steps; /* grammar_matcher_steps of the last step that gave it tokens */
    uint64_t submitted_ns, started_ns; /* started: computes from then on */
    uint64_t first_ns, last_ns;        /* tokens computed here; 0: none yet */
    /* The last n_unsent tokens and their text wait for the next event. While there are any, the
     * request holds one credit of its sink. */
    uint32_t n_unsent;
    bool unsent_forced;                 /* they are forced (reasoning_limit.h) */
    struct strbuf unsent, unsent_bytes; /* unsent_bytes: uint32_t [n_unsent], of each one's text */
    uint64_t sent_ns;                   /* time of the last token that was sent */
    /* Of the unsent tokens and the next one, or of the rows of an event; request_reserve. */
    float *token_logprobs;         /* [REQUEST_EVENT_LOGPROBS] */
    uint32_t *top_tokens;          /* [...][n_top] */
    float *top_logprobs;           /* [...][n_top] */
    int64_t end_token, stop_index; /* that ended the answer; -1: none */
    uint32_t end_place;            /* of the end token in token_logprobs */
    bool end_forced;               /* the end token was forced: it has no place there */

    /* The first bytes of the answer's text that the receiver has: a continued answer's. */
    uint64_t n_text_known;
    enum finish_reason ended_before; /* a continued answer is whole already, for this reason */
    enum finish_reason ending; /* computed to the end: only recorded routing is still to be sent */

    /* Logits and logprobs. Row i of the logits follows token i. The request wants the rows from
     * next_row to end_row - 1. `hidden` has the hidden values of rows that are computed, of which
     * those before next_row are sent. */
    uint32_t next_row, end_row;
    float *hidden; /* [n_hidden][d_model], of positions from hidden_begin on; request_reserve */
    uint32_t hidden_begin, n_hidden;
};

/* All zero, except for kind, sink, stream, slot and max_drafts. NULL: out of memory. */
struct request *request_new(const struct tokenizer *t, enum request_kind kind,
                            const struct response_sink *sink, void *sink_arg);
void request_free(struct request *r); /* takes NULL */

/* Another worker took r before: this one does not refuse it because many wait. Only for a request
 * that has not run in this worker. */
static inline bool request_is_taken(const struct request *r)
{
    return r->resumed || r->n_generated;
}

/* The first n tokens of its conversation, for the prefix cache. */
static inline struct kv_prefix request_prefix(const struct request *r, uint32_t n)
{
    return (struct kv_prefix){r->tokens.ids, n, r->n_prompt, r->cache_salt};
}
/* What it can begin with of that: it computes a position of which it wants a row. */
static inline struct kv_prefix request_reusable(const struct request *r)
{
    return request_prefix(r, r->kind == REQUEST_GENERATE ? r->n_prefill - 1 : r->next_row);
}
/* The memory that it holds while it waits; an estimate, and not of its grammar (grammars.h). */
uint64_t request_bytes(const struct request *r);

/* The most positions that the request may fill of a context of this size. The last token generated
 * fills none, because nothing is computed from it. */
uint32_t request_positions(const struct request *r, uint32_t context);

/* Allocates what the request needs while it runs, so that no step allocates: the tokens of as many
 * positions and one more, the table of their pages, and for logits and logprobs `hidden`, of at
 * most `batch` rows. Called once. False: out of memory. */
bool request_reserve(struct request *r, uint32_t positions, uint32_t batch, uint32_t d_model);

/* Feeds the token just generated, the last of r->tokens; appends to *out the text that can be sent
 * now. True: a stop string has come; *out then ends before it and the rest is dropped. */
bool request_push_token(struct request *r, uint32_t token, struct strbuf *out);
/* Memory was short for the answer's text. */
bool request_has_lost_text(const struct request *r);
/* Enters tokens of the answer that another worker generated, after the prompt and before
 * engine_submit; the receiver has them and text_bytes of the text. Sets ended_before where they
 * end the answer, within a context of this size. False: out of memory. */
bool request_continue(struct request *r, const uint32_t *answer, size_t n, uint64_t text_bytes,
                      uint32_t context);
/* grammar_cursor_begin, where there is a grammar, with the answer so far. Sets ended_before where
 * nothing can follow. */
enum error_code request_begin_grammar(struct request *r, struct error *e);
/* Whether the answer is as long as it may be, within a context of this size: FINISH_LENGTH,
 * FINISH_CONTEXT or FINISH_NONE. Where tokens are forced next, there must be space for them and one
 * more. */
enum finish_reason request_is_full(const struct request *r, uint32_t context);
/* The answer ends without a stop string: appends the text that was held back. */
void request_flush(struct request *r, struct strbuf *out);

#endif
