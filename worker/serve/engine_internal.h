/* What the engine's files share: engine.c (the thread, admission), step.c (prefill and decode),
 * answers.c (rows of answers, with drafts), pick.c (the next tokens), rows.c (rows of logits),
 * respond.c (events and ends of requests), slots.c (how requests lose their slots), unsent.c
 * (tokens that wait for their event), pages.c (pages of the KV cache), states.c (of recurrent
 * layers), shared_prompts.c. Each uses only those named after it. */
#ifndef MOED_WORKER_SERVE_ENGINE_INTERNAL_H
#define MOED_WORKER_SERVE_ENGINE_INTERNAL_H

#include "engine.h"

#include "prompt_pace.h"
#include "queue.h"
#include "draft_metrics.h"
#include "speculation.h"
#include "token_rate.h"

#include "base/clock.h"
#include "device/worker_memory.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

/* Rows of logits computed at once. A row has the size of the vocabulary and each is an event of a
 * Logits request, so they are few. For Logprobs they are as many as make it worth to unpack the
 * output head for cuBLAS. */
#define LOGITS_ROWS   8
#define LOGPROBS_ROWS WORKER_LOGITS_ROWS_BLAS

/* Steps of grammars (grammar_matcher_steps) that the answers of a batch share, and as many that its
 * prompts' next tokens share. A grammar with few takes no part in it. */
enum {
    GRAMMAR_STEPS = 1 << 17, /* some 10 ms on a slow core */
    GRAMMAR_LONG = GRAMMAR_STEPS / 16,
};

#define ENGINE_STOPPING "the worker is stopping: try again"

struct engine_counters {
    struct counter *finished[FINISH_CANCELLED + 1];
    struct counter *prompt_tokens, *generated_tokens, *token_events, *prefill_ns, *decode_ns,
        *decode_steps;
    struct counter *decode_stalled;
    struct counter *cached_tokens, *suspended;
    struct counter *rows_largest, *rows_whole; /* of logits, sampled */
    struct counter *grammar_ns, *grammar_masks;
    struct gauge *running, *waiting;
    struct gauge *pages_reserved, *pages_free; /* NULL: the KV cache has no pages */
    struct histogram *first_token, *token;
};

/* Rows from which tokens are picked: all that a batch has of answers, or the last of a prompt. */
struct picked_rows {
    const float *hidden;
    uint32_t n;
    uint32_t k;    /* as many of their largest logits are found; 0: none */
    bool computed; /* all logits are */
};

/* Tokens that a step gives one request: they share the time since those before them. */
struct fresh_tokens {
    uint64_t since_ns; /* time of the request's last token before them */
    uint32_t n;        /* that are not yet in the histogram; an answer's first never is */
};

struct engine {
    struct engine_config config;
    pthread_t thread;
    bool started;

    pthread_mutex_t lock; /* guards the next seven */
    pthread_cond_t changed, errand_done;
    struct request *inbox, **inbox_end; /* submitted, in order; linked by request.next */
    bool woken, stopping;
    bool cancels;                  /* a request was cancelled after take_inbox */
    uint32_t n_queued;             /* in the inbox and waiting */
    struct engine_errand *errands; /* of engine_call */

    /* The rest is the engine thread's. */
    struct request_queue waiting;
    uint64_t deadline_ns;    /* none of the waiting has an earlier one; UINT64_MAX: none has any */
    struct request *running; /* in order of their start */
    uint32_t n_slots_used;
    bool ends_cancelled;             /* one of these is cancelled, or one that has ended since */
    double token_ns, decode_step_ns; /* recent: of a prompt's token in a prefill step; of a decode
                                        step */
    struct prompt_pace prompt_pace;
    uint64_t prefill_debt_ns; /* time of decode steps that must come before the next prefill */
    uint64_t n_admitted;      /* requests that got a slot */
    bool waits_for_pages; /* a request of the queue does, or is suspended since it was looked at */
    bool paged;           /* the KV cache is a pool of pages that memd may limit */
    uint64_t kv_limit;    /* the last limit of its bytes that was applied */
    uint64_t kv_retry_ns; /* when to try again to get memory of the device that was missing */
    int64_t idle_ns;      /* until an idle engine looks at it again */
    void *tables;         /* the memory of these arrays: */
    bool *slot_used;      /* [parallel] */
    struct batch_token *batch; /* [serving_batch_tokens] */
    struct row_group *groups;  /* [serving_batch_tokens / KV_SMALL_TOKENS]: of the batch */
    uint32_t n_groups;
    struct answer_rows *answers; /* [parallel]: of the batch's rows that decode */
    struct prompt_rows *prompts; /* [parallel]: of the rows after them */
    struct request **order;      /* [parallel]: prompts, while rows are chosen */
    bool read_last;           /* the last step for prompts read pages of the conversations' file */
    bool oldest_read;         /* the last such step, for the request that started first */
    bool others_first;        /* the last batch had rows of its prompt alone: others come first */
    uint32_t rows_most;       /* that decode, and of these arrays */
    float *largest;           /* [rows_most][SAMPLER_LARGEST]: each row's largest logits, */
    uint32_t *largest_tokens; /* and their tokens, where the device finds them */
    float *logits;            /* [rows_most][vocab] */
    struct picked_rows rows;
    struct speculation speculation;
    struct draft_metrics draft_metrics;
    struct fresh_tokens fresh;
    struct sampler *sampler;
    struct strbuf text; /* of one token */

    struct engine_counters counters;
    char reason_labels[FINISH_CANCELLED + 1][24];
    _Atomic uint32_t n_running, n_waiting;
    struct token_rate rate;
};

/* Rows [first, first + n) of a batch are the next positions of an answer: of its last token, and of
 * drafts of those that may follow it. */
struct answer_rows {
    struct request *request;
    uint32_t first, n;
    bool long_grammar; /* one token a step */
};

/* Rows [first, first + n) of a batch are the next positions of a prompt. */
struct prompt_rows {
    struct request *request;
    uint32_t first, n;
    bool has_credit; /* they end the prompt, so they give a token */
};

/* ---- slots.c ---- */

/* Takes r's pages and slot from it and puts it first into the queue. Its tokens are sent before, so
 * it holds no credit while it waits. What the prefix cache keeps of it need not be computed again.
 */
void engine_suspend(struct engine *g, struct request *r);

/* r is in the list of running requests, or in the queue, and shall not be. */
void engine_leave_slot(struct engine *g, struct request *r);
void engine_leave_queue(struct engine *g, struct request *r);

/* Gives r pages up to `positions`, as engine_extend_pages, but takes pages from other requests.
 * False: r has been suspended. */
bool engine_need_pages(struct engine *g, struct request *r, uint32_t positions);

/* ---- unsent.c ---- */

/* Adds the last n tokens of r, 0 or 1, and text, to its next event. Uses up a credit that was
 * taken. */
void engine_add_unsent(struct request *r, uint32_t n, const struct strbuf *text);
void engine_send_unsent(struct engine *g, struct request *r);
/* n places of r's log-probabilities. */
struct response_logprobs engine_logprobs(const struct request *r, uint32_t first, uint32_t n);
/* Before anything that may take long. */
void engine_send_all_unsent(struct engine *g);

/* ---- shared_prompts.c ---- */

/* Whether a running request of the same submitter computes r's prompt, and the prefix cache lacks a
 * page or more of it. r then waits for it; others may overtake r. */
bool engine_waits_for_prompt(struct engine *g, struct request *r);
/* Ends the waiting for prompts that are computed, or whose requests have ended. */
void engine_end_waits(struct engine *g);
/* Before a step chooses rows: a request of which nothing is computed yet begins again, where others
 * have computed more of its prompt's beginning; where another is about to, r->follows is set to
 * that one. Requests may be suspended. */
void engine_share_beginnings(struct engine *g);
/* The same for a prompt with batches of its own, which runs next. False: it runs no longer. */
bool engine_find_beginning(struct engine *g, struct request *r);

/* ---- pages.c ---- */

/* The positions that a request alone could have. */
uint64_t engine_most_positions(const struct engine *g);
enum page_supply {
    PAGES_NOW,
    PAGES_FROM_DEVICE, /* later: this worker's device lacks pages */
    PAGES_FROM_POOL,   /* later: the pool lacks pages, which other workers may leave */
    PAGES_NEVER
};
/* Whether there are pages for r, which waits, beside those that running prompts still need. */
enum page_supply engine_page_supply(const struct engine *g, const struct request *r);
/* Whether r may start before `first`, which waits for pages: together with all that overtook it
 * they fit, whatever they still need, so it starts at the latest when those that it found running
 * have ended. */
bool engine_may_overtake(const struct engine *g, const struct request *r,
                         const struct request *first);
/* Gives r, which has a slot, pages: the prefix cache's, then pages for one position more; all that
 * it may need if it does not share pages. False: there are not enough. */
bool engine_open_pages(struct engine *g, struct request *r);
/* Whether r waits for pages of the conversations' file, which engine_read_pages reads. Until then
 * it has no pages in its slot, and computes nothing. */
static inline bool engine_reads_pages(const struct request *r)
{
    return r->path.reading.more;
}
/* r has pages, and perhaps those of the file: then it computes from now on. */
static inline void engine_note_start(struct request *r)
{
    if (!r->started_ns && !engine_reads_pages(r))
        r->started_ns = clock_ns();
}
/* Reads some of them; then as engine_open_pages. False: the device has not enough. */
bool engine_read_pages(struct engine *g, struct request *r);
/* Opens r's pages again if the prefix cache now has a page or more beyond those that r began with.
 * Nothing of r is computed yet. False: there are not enough. */
bool engine_reopen_pages(struct engine *g, struct request *r);
/* Gives r pages up to `positions`. False: there are not enough. */
bool engine_extend_pages(struct engine *g, struct request *r, uint32_t positions);
/* Tells the prefix cache of the positions up to n_past, which were computed in this way and time,
 * and leaves pages behind that layers with a window need no longer. */
void engine_share_pages(struct engine *g, struct request *r, enum kv_kind kind, uint64_t ns);
/* r leaves its slot: its pages stay in the prefix cache, as far as they are computed. */
void engine_close_pages(struct engine *g, struct request *r);

/* The last position up to n at which a group of a prompt of n_prompt tokens ends (states.c). */
uint32_t engine_cut_before(const struct engine *g, uint32_t n, uint32_t n_prompt);

/* ---- states.c: models with recurrent layers; elsewhere these do nothing ---- */

/* Begins r's path and its state with the longest prefix of which there are keys, values and a
 * snapshot, and chooses the snapshots that its prompt takes. */
void engine_open_state(struct engine *g, struct request *r);
/* The positions that r would begin with, of which the prefix cache has `known`. */
uint32_t engine_state_positions(const struct engine *g, const struct request *r, uint32_t known);
/* r's prompt shall take a snapshot there, too, for a request that begins alike. Of several such
 * positions the next one is planned: the others when that one has been computed. */
void engine_plan_snapshot(const struct engine *g, struct request *r, uint32_t position);
/* Where the state after a position of r's prompt, which is about to be computed, goes; NULL:
 * nowhere. */
uint8_t *engine_snapshot_after(struct engine *g, struct request *r, uint32_t position);
/* The rows up to n_past have been computed: their snapshots are valid. */
void engine_keep_snapshots(struct engine *g, struct request *r);
/* r's answer has another position: takes a snapshot where r may lose its pages soon. */
void engine_keep_state(struct engine *g, struct request *r);
/* r leaves its slot: takes a snapshot of its state. */
void engine_close_state(struct engine *g, struct request *r);

/* ---- step.c ---- */

/* Runs one step. False: there is nothing to do until something changes. */
bool engine_step(struct engine *g);

/* ---- answers.c ---- */

/* Fills the batch with rows of requests that may generate now, with their drafts unless prompts
 * share the batch, and takes a credit for each request. *n_answers: how many they are; returns the
 * rows. */
uint32_t engine_gather_answers(struct engine *g, bool drafts, uint32_t *n_answers);
/* Adds the tokens that the rows give to the answers. Returns how many drafts were right. */
uint32_t engine_finish_answers(struct engine *g, uint32_t n_answers, const float *hidden);
bool engine_generates(const struct request *r);
/* The step has failed, so r is of no use any more. credit: one was taken for its token. */
void engine_fail_step(struct engine *g, struct request *r, bool credit, const struct error *e);

/* ---- pick.c ---- */

/* Finds the logits of hidden [rows][d_model], the rows of n answers, of which the first is row 0.
 * hidden stays until the last engine_pick_token. False: as forward_logits. */
bool engine_begin_picking(struct engine *g, const struct answer_rows *answers, uint32_t n,
                          const float *hidden, struct error *e);
/* The next token of r, after that row. False: as forward_logits; the engine stops, and the token
 * needs a grammar. */
bool engine_pick_token(struct engine *g, struct request *r, uint32_t row, uint32_t *token,
                       struct error *e);
/* Adds the next token of r, and the text that can be shown now, to r's answer. Uses up a credit
 * that was taken. False: r has ended. */
bool engine_take_token(struct engine *g, struct request *r, uint32_t token);

/* ---- respond.c ---- */

static inline bool engine_take_credit(const struct request *r)
{
    return r->sink->take_credit(r->sink_arg);
}

static inline void engine_return_credit(const struct request *r)
{
    r->sink->return_credit(r->sink_arg);
}

/* Reports how much of the prompt is computed, where r wants it and its sink takes it. */
void engine_report_progress(const struct request *r);

/* Between these two a step's tokens of r are taken. The end of r observes them, too. */
void engine_begin_tokens(struct engine *g, const struct request *r);
void engine_observe_tokens(struct engine *g);

/* These end r: they send what is unsent, report the end to the sink and free r. */
void engine_finish(struct engine *g, struct request *r, enum finish_reason reason);
void engine_fail(struct engine *g, struct request *r, enum error_code code, const char *text);
/* As engine_finish, but where routing is still to be sent, engine_send_routing ends r later. */
void engine_end(struct engine *g, struct request *r, enum finish_reason reason);
void engine_end_cancelled(struct engine *g);
void engine_fail_all(struct engine *g, enum error_code code, const char *text);

/* Whether the last step's routing is still to be sent; until then the request computes nothing. */
bool engine_has_routing(const struct request *r);
/* Sends as much of the last step's routing as the sinks take. True: something was sent. */
bool engine_send_routing(struct engine *g);

/* ---- rows.c ---- */

/* Whether hidden values of wanted rows are computed and not sent. */
bool engine_has_rows(const struct request *r);
/* Keeps hidden [n][d_model], of the n positions before n_past, for engine_send_rows. */
void engine_keep_rows(struct engine *g, struct request *r, const float *hidden, uint32_t n);
/* Sends some rows of one request whose sink takes them. True: something was sent. */
bool engine_send_rows(struct engine *g);

#endif
