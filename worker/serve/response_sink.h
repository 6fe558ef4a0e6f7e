/* Where the engine delivers a request's results. The submitter of a request supplies the sink: in
 * the worker a frontend (frontend_sink.c), in tests a recorder. The engine knows nothing else about
 * the submitter.
 *
 *   submitter --engine_submit--> engine --tokens, logits, logprobs, routing--> sink
 *                                       --done or failed, once, last---------> sink
 *
 * Threads: the engine's thread calls the sink. After that thread has ended, engine_stop calls it
 * from its caller's thread. So no two calls of one engine overlap. The engine holds no lock during
 * a call.
 *
 * Duties of a sink: it does not block, because all running requests wait for it. It may call
 * engine_submit, engine_cancel, engine_complete and engine_resume; not engine_stop or engine_free.
 * Arguments are borrowed for the call.
 *
 * Ownership: the submitter owns the sink and its argument. Both stay valid until done or failed has
 * returned; the engine uses neither afterwards and frees the request.
 *
 * Back-pressure: each call of progress, tokens, logits, logprobs and routing uses one credit. The
 * engine takes the credit before it computes what the call delivers, so it never computes what it
 * may not deliver. Without a credit the request sits the step out; other requests go on. A credit
 * that is not used is returned. done and failed need none. */
#ifndef MOED_WORKER_SERVE_RESPONSE_SINK_H
#define MOED_WORKER_SERVE_RESPONSE_SINK_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct recording_part;

/* Why a request is done; the values of Moed__V1__Done__Reason. */
enum finish_reason {
    FINISH_NONE,
    FINISH_END,     /* an end-of-generation token, or engine_complete */
    FINISH_STOP,    /* a stop string */
    FINISH_LENGTH,  /* max_tokens, or all that was asked for where nothing is generated */
    FINISH_CONTEXT, /* the context is full */
    FINISH_CANCELLED,
};

/* Log-probabilities of n tokens, before any sampler, and of the n_top most probable ones at their
 * places. */
struct response_logprobs {
    uint32_t n, n_top;
    const float *logprobs;      /* [n]; NULL: not asked for */
    const uint32_t *top_tokens; /* [n][n_top], the most probable first */
    const float *top_logprobs;
};

struct response_summary {
    enum finish_reason reason;
    uint32_t prompt_tokens, cached_tokens, generated_tokens;
    /* cached: of the prompt, those that the prefix cache had */
    uint32_t drafted_tokens, accepted_tokens; /* speculation.h; of the generated, the accepted were
                                                 drafted */
    uint32_t prediction_tokens, predicted_tokens; /* of the prediction; of these, those that the
                                                     answer has (expected_answer.h) */
    uint64_t queue_ns;                            /* from engine_submit to the slot */
    uint64_t prefill_ns;                          /* from the slot to the first token */
    uint64_t decode_ns;                           /* from the first token to the last */
    int64_t end_token;                            /* FINISH_END: which; else -1 */
    struct response_logprobs end_logprobs; /* of end_token; n 0: none, not asked for, or forced */
    int64_t stop_index; /* FINISH_STOP: which of the request's stop strings; else -1 */
};

struct response_tokens {
    const uint32_t *tokens; /* [n_tokens] */
    uint32_t n_tokens;
    /* [n_tokens]: of each one's text, which may come later. NULL: memory was short, or no token */
    const uint32_t *token_bytes;
    const char *text;
    size_t text_bytes;
    struct response_logprobs logprobs;
    float mirostat_mu; /* after the last of them */
    bool first;        /* the first that this worker generates; then, as in the summary: */
    uint32_t prompt_tokens, cached_tokens;
    uint64_t queue_ns;
    bool forced; /* they were not chosen (reasoning_limit.h), and have no log-probabilities */
};

struct response_sink {
    /* False: the receiver is behind. When that changes, the submitter calls engine_resume. */
    bool (*take_credit)(void *arg);
    void (*return_credit)(void *arg);

    /* n_past of the prompt's positions are computed, n_cached of them were in the prefix cache.
     * Where there is no credit, it is not called. */
    void (*progress)(void *arg, uint32_t n_past, uint32_t n_prompt, uint32_t n_cached, uint64_t ns);
    /* The next tokens of the answer, and the text that they complete. Either may be empty: text is
     * held back while it may begin a stop string or ends within a UTF-8 character. */
    void (*tokens)(void *arg, const struct response_tokens *tokens);
    /* logits [vocab] after token `row` of the prompt; rows come in order. */
    void (*logits)(void *arg, uint32_t row, const float *logits, uint32_t vocab);
    /* Of tokens first, first + 1, ... of the prompt; in order. */
    void (*logprobs)(void *arg, uint32_t first, const struct response_logprobs *logprobs);
    /* The experts that the gates chose for some positions (forward/recording.h); in order. */
    void (*routing)(void *arg, const struct recording_part *part);

    void (*done)(void *arg, const struct response_summary *summary);
    void (*failed)(void *arg, enum error_code code, const char *text);
};

#endif
