/* libmoed: talk to a running moed deployment from C or C++.
 *
 * A deployment is started with `moed up MODEL.gguf`. A program attaches to its worker by the
 * deployment's name, asks, and detaches:
 *
 *     static int print(void *arg, const struct moed_event *event)
 *     {
 *         fwrite(event->text, 1, event->text_bytes, stdout);
 *         return 0; // anything else cancels
 *     }
 *
 *     struct moed_session *session;
 *     struct moed_error error;
 *     if (moed_attach(NULL, &session, &error)) {
 *         fprintf(stderr, "%s\n", error.message);
 *         return 1;
 *     }
 *     const char *prompt = "Once upon a time";
 *     struct moed_generate_options options = {
 *         .prompt = prompt, .prompt_bytes = strlen(prompt), .max_tokens = 64};
 *     if (moed_generate(session, &options, print, NULL, NULL, &error))
 *         fprintf(stderr, "%s%s\n", error.message, error.retry ? " (try again)" : "");
 *     moed_detach(session);
 *
 * Build with `cc program.c $(pkg-config --cflags --libs moed)`. A complete program is
 * client/examples/generate.c.
 *
 * Errors are values. A function that can fail returns enum moed_code, MOED_OK being 0, and fills
 * the struct moed_error that it is given (which may be NULL). Outputs are set only on success.
 * Nothing here prints, exits or keeps global state.
 *
 * Threads. Any number of threads may use one session at once, each with requests of its own; the
 * only exception is moed_detach, which must be the last call on the session. A request is consumed
 * (moed_request_next, moed_request_free) by one thread at a time; moed_request_cancel may be called
 * by any thread until moed_request_free.
 *
 * Back-pressure. The worker sends only a limited number of events ahead of what the program has
 * consumed, and that limit is shared by the session's requests. So a program that stops reading one
 * request stops the session's others after a while: read them all, cancel, or attach once more.
 *
 * Structs that a program fills may be zeroed first: zero and NULL mean the default everywhere. New
 * fields are added at the end and change the library's soname.
 */
#ifndef MOED_H
#define MOED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MOED_API      __attribute__((visibility("default")))
#define MOED_MUST_USE __attribute__((warn_unused_result))

/* ---- Errors ---- */

enum moed_code {
    MOED_OK = 0,
    MOED_ERROR_USAGE = 1,  /* an argument is wrong: a token id out of the vocabulary, no prompt */
    MOED_ERROR_FORMAT = 2, /* a file is malformed */
    MOED_ERROR_UNSUPPORTED = 3, /* well formed, but moed does not do it */
    MOED_ERROR_NOT_FOUND = 4,   /* no such deployment is running, no such process */
    MOED_ERROR_MEMORY = 5,
    MOED_ERROR_IO = 6,
    MOED_ERROR_PROTOCOL = 7,    /* the other side sent what makes no sense */
    MOED_ERROR_VERSION = 8,     /* library and deployment are of different versions */
    MOED_ERROR_UNAVAILABLE = 9, /* not now: starting, restarting, gone */
    MOED_ERROR_TIMEOUT = 10,
    MOED_ERROR_LIMIT = 11, /* longer than the context, a message too large, too many requests */
    MOED_ERROR_CANCELLED = 12,
    MOED_ERROR_EXISTS = 13,
    MOED_ERROR_INTERNAL = 14
};

struct moed_error {
    enum moed_code code;
    bool retry;        /* the same call may succeed later without change; see moed_session_alive */
    char message[512]; /* one line for a person: what, where, what to do */
};

/* The code's name in lower case ("not_found"); never NULL. */
MOED_API const char *moed_code_name(enum moed_code code);
/* The library's version ("0.1.0"). */
MOED_API const char *moed_version(void);
/* Free memory that a function below returned; takes NULL. */
MOED_API void moed_free(void *memory);

/* ---- Sessions ---- */

struct moed_session;

struct moed_attach_options {
    const char *deployment; /* `moed up --name`; NULL: "default" */
    const char *client;     /* shown in the worker's log; NULL: the program's name */
    int timeout_ms;         /* for attaching and for each short question (tokenize, ...); 0: 30 s */
};

/* Attach to a deployment's worker. MOED_ERROR_NOT_FOUND: no such deployment runs.
 * MOED_ERROR_UNAVAILABLE with retry set: it runs, but its worker is starting or being restarted.
 * options may be NULL. */
MOED_API MOED_MUST_USE enum moed_code moed_attach(const struct moed_attach_options *options,
                                                  struct moed_session **out,
                                                  struct moed_error *error);

/* False once the worker has gone: every request of the session fails then, with
 * MOED_ERROR_UNAVAILABLE and retry set. Detach and attach again; a restarted worker answers within
 * seconds. */
MOED_API bool moed_session_alive(const struct moed_session *session);

/* End the session; requests that still run are cancelled. Their handles stay valid for
 * moed_request_next, which fails with MOED_ERROR_CANCELLED, and must still be freed. Takes NULL. */
MOED_API void moed_detach(struct moed_session *session);

/* ---- The model ---- */

struct moed_model {
    const char *name;         /* "Qwen3 30B A3B" */
    const char *architecture; /* "qwen3moe" */
    const char *path;         /* of the model file */
    uint64_t parameters;
    uint64_t file_bytes;
    uint32_t layers;
    uint32_t d_model;
    uint32_t experts;      /* a layer */
    uint32_t experts_used; /* for one token */
    uint32_t vocab;
    uint32_t context;          /* tokens a request may have, prompt and answer */
    uint32_t context_trained;  /* that the model was trained with */
    const char *device;        /* that the worker computes on: "host" */
    int64_t bos, eos;          /* begin and end token; -1: none */
    const char *chat_template; /* as in the model file; empty: none */
    uint32_t dense_layers;     /* the first layers, which have no experts */
};

/* The model's facts; release them with moed_model_free. */
MOED_API MOED_MUST_USE enum moed_code
moed_model_get(struct moed_session *session, struct moed_model **out, struct moed_error *error);
MOED_API void moed_model_free(struct moed_model *model); /* takes NULL */

/* ---- Text and tokens ---- */

enum {
    MOED_ADD_SPECIAL = 1,  /* the begin and end tokens that the model asks for */
    MOED_PARSE_SPECIAL = 2 /* special tokens' texts become those tokens */
};

/* Text (any bytes) to ids. *tokens is released with moed_free. flags: MOED_ADD_SPECIAL and so on.
 */
MOED_API MOED_MUST_USE enum moed_code moed_tokenize(struct moed_session *session, const char *text,
                                                    size_t text_bytes, unsigned flags,
                                                    uint32_t **tokens, size_t *token_count,
                                                    struct moed_error *error);
/* Ids to bytes, not necessarily UTF-8. A NUL stands behind them, not counted. special: the texts of
 * special tokens too. *text is released with moed_free. MOED_ERROR_USAGE: an id out of the
 * vocabulary. */
MOED_API MOED_MUST_USE enum moed_code moed_detokenize(struct moed_session *session,
                                                      const uint32_t *tokens, size_t token_count,
                                                      bool special, char **text, size_t *text_bytes,
                                                      struct moed_error *error);

/* ---- Requests ---- */

struct moed_bytes {
    const char *data;
    size_t len;
};

struct moed_sampling {
    float temperature;          /* 0: greedy, the most likely token each time */
    uint32_t top_k;             /* 0: off */
    float top_p;                /* 0 or 1: off */
    float min_p;                /* 0: off */
    float repetition_penalty;   /* 0 or 1: off */
    uint32_t repetition_window; /* tokens that it looks back on; 0: 64 */
    uint64_t seed;              /* the same seed, the same answer */
};

/* What is wanted of a generation beside its tokens: MOED_EVENT_ROUTING, which experts each layer
 * chose. Recording slows the worker down only for those who ask for it. */
struct moed_record_options {
    bool gate; /* the gates' probabilities too */
    /* And the gates' inputs, of each position that is hidden_phase modulo hidden_every; 0: of none.
     */
    uint32_t hidden_every, hidden_phase;
    bool stepwise;    /* the prompt is computed one token at a time, as an answer is */
    bool prompt_only; /* no answer: the request ends once the prompt is computed */
};

struct moed_generate_options {
    const char *prompt; /* text, any bytes; or, where prompt_bytes is 0, */
    size_t prompt_bytes;
    const uint32_t *tokens; /* ids */
    size_t token_count;
    bool parse_special;  /* special tokens' texts in the prompt become those tokens */
    bool ignore_end;     /* go on past end-of-generation tokens */
    uint32_t max_tokens; /* 0: until the context is full */
    struct moed_sampling sampling;
    const struct moed_bytes *stop; /* the answer ends before any of these */
    size_t stop_count;
    const struct moed_record_options *record; /* NULL: no routing */
};

enum moed_reason {
    MOED_REASON_NONE = 0,     /* not a generation */
    MOED_REASON_END = 1,      /* an end-of-generation token */
    MOED_REASON_STOP = 2,     /* a stop string */
    MOED_REASON_LENGTH = 3,   /* max_tokens */
    MOED_REASON_CONTEXT = 4,  /* the context is full */
    MOED_REASON_CANCELLED = 5 /* moed_request_cancel, or the callback asked for it */
};

/* The reason in lower case ("length"); never NULL. */
MOED_API const char *moed_reason_name(enum moed_reason reason);

struct moed_result {
    enum moed_reason reason;
    uint32_t prompt_tokens;
    uint32_t generated_tokens;
    uint64_t queue_ns;   /* submitted to first computed */
    uint64_t prefill_ns; /* first computed to first token */
    uint64_t decode_ns;  /* first token to last */
};

enum moed_event_kind {
    MOED_EVENT_TOKENS = 1,   /* tokens, token_count, text, text_bytes; some tokens at once where they come fast */
    MOED_EVENT_ROW = 2,      /* row, logits, logit_count */
    MOED_EVENT_DONE = 3,     /* result; the last event of a request */
    MOED_EVENT_LOGPROBS = 4, /* first, logprobs, logprob_count */
    MOED_EVENT_ROUTING = 5   /* routing */
};

/* What the gates did with token_count tokens of prompt and answer, from position `first` on. In
 * order; a request's events together tell of all its tokens but the answer's last, of which nothing
 * was computed. L: layers with experts, moed_model.layers - moed_model.dense_layers. */
struct moed_routing {
    size_t first, token_count;
    const uint16_t *selected; /* [token_count][L][experts_used], the first choice first */
    size_t selected_count;    /* how many numbers these are */
    const float *gate;        /* [token_count][L][experts]: probabilities; NULL: not asked for */
    size_t gate_count;
    const uint32_t *hidden_at; /* [hidden_at_count]: the positions whose gate inputs there are */
    size_t hidden_at_count;
    const uint16_t *hidden; /* [hidden_at_count][L][d_model], IEEE half precision */
    size_t hidden_count;
};

/* What a request has produced. Pointers are valid until the next moed_request_next or
 * moed_request_free on the request, or until the callback returns. */
struct moed_event {
    enum moed_event_kind kind;
    const uint32_t *tokens;
    size_t token_count;
    const char *text; /* not NUL-terminated; empty while a character is not complete */
    size_t text_bytes;
    uint32_t row; /* from 0, in order */
    const float *logits;
    size_t logit_count; /* the vocabulary's size */
    struct moed_result result;
    size_t first;          /* logprobs[i] is that of the request's token first + i; in order */
    const float *logprobs; /* natural logarithms, at most 0 */
    size_t logprob_count;
    struct moed_routing routing;
};

struct moed_request;

/* Submit a prompt; the answer comes as events. The options are copied. */
MOED_API MOED_MUST_USE enum moed_code
moed_generate_start(struct moed_session *session, const struct moed_generate_options *options,
                    struct moed_request **out, struct moed_error *error);

/* Ask for the logits that follow each of the given tokens: one MOED_EVENT_ROW a token, in order,
 * then MOED_EVENT_DONE. stepwise computes them one at a time as decoding does, else as one batch.
 */
MOED_API MOED_MUST_USE enum moed_code moed_logits_start(struct moed_session *session,
                                                        const uint32_t *tokens, size_t token_count,
                                                        bool stepwise, struct moed_request **out,
                                                        struct moed_error *error);

/* Ask how probable each of tokens[first ...] is after all that stand before it: some
 * MOED_EVENT_LOGPROBS, which together have each of them once and in order, then MOED_EVENT_DONE.
 * first: from 1 to token_count - 1, or 0 for 1. Much less travels than with the logits. */
MOED_API MOED_MUST_USE enum moed_code
moed_logprobs_start(struct moed_session *session, const uint32_t *tokens, size_t token_count,
                    size_t first, struct moed_request **out, struct moed_error *error);

/* The next event, waiting at most timeout_ms (0: do not wait; -1: no limit). MOED_ERROR_TIMEOUT:
 * none yet. After MOED_EVENT_DONE it returns that again; after any other error, that error again.
 */
MOED_API MOED_MUST_USE enum moed_code moed_request_next(struct moed_request *request,
                                                        int timeout_ms, struct moed_event *event,
                                                        struct moed_error *error);

/* A descriptor that is readable while moed_request_next has something to return without waiting,
 * for poll(2) and event loops. Owned by the request; do not read or close it. -1: no descriptor
 * left. */
MOED_API int moed_request_fd(struct moed_request *request);

/* Ask the worker to stop. Events on their way still come, then MOED_EVENT_DONE with
 * MOED_REASON_CANCELLED, unless it was done before. */
MOED_API void moed_request_cancel(struct moed_request *request);

/* Release it, cancelling it first if it still runs; takes NULL. */
MOED_API void moed_request_free(struct moed_request *request);

/* ---- The same, waiting ---- */

/* Called on the thread that called moed_generate, moed_logits or moed_logprobs, once an event.
 * What it returns: 0 to go on, anything else to cancel. It may use the session, but not detach it.
 */
typedef int moed_callback(void *arg, const struct moed_event *event);

/* moed_generate_start, then callback for each event until the end. A cancelled generation is not an
 * error: its result has MOED_REASON_CANCELLED. result may be NULL. */
MOED_API MOED_MUST_USE enum moed_code moed_generate(struct moed_session *session,
                                                    const struct moed_generate_options *options,
                                                    moed_callback *callback, void *arg,
                                                    struct moed_result *result,
                                                    struct moed_error *error);
/* The same for logits. Cancelled by the callback: MOED_ERROR_CANCELLED. */
MOED_API MOED_MUST_USE enum moed_code moed_logits(struct moed_session *session,
                                                  const uint32_t *tokens, size_t token_count,
                                                  bool stepwise, moed_callback *callback, void *arg,
                                                  struct moed_error *error);

/* The same for the probabilities of tokens. */
MOED_API MOED_MUST_USE enum moed_code moed_logprobs(struct moed_session *session,
                                                    const uint32_t *tokens, size_t token_count,
                                                    size_t first, moed_callback *callback,
                                                    void *arg, struct moed_error *error);

/* ---- Monitoring ---- */

/* The metrics of one process of a deployment ("memd", "worker", "cpuexec"; deployment NULL:
 * "default") in Prometheus' text format. Needs no session. *text is released with moed_free. */
MOED_API MOED_MUST_USE enum moed_code moed_metrics(const char *deployment, const char *process,
                                                   char **text, struct moed_error *error);

#ifdef __cplusplus
}
#endif

#endif
