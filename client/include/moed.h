/* libmoed: talk to a running moed deployment from C or C++.
 *
 * `moed up MODEL.gguf` starts a deployment. A program attaches to it by name, sends requests and
 * detaches:
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
 *     struct moed_generate_options options = {
 *         .size = sizeof options, .prompt = "Once upon a time", .max_tokens = 64};
 *     if (moed_generate(session, &options, print, NULL, NULL, &error))
 *         fprintf(stderr, "%s%s\n", error.message, error.retry ? " (try again)" : "");
 *     moed_detach(session);
 *
 * Build with `cc program.c $(pkg-config --cflags --libs moed)`. client/examples/generate.c is a
 * complete program.
 *
 * Errors. A function that can fail returns enum moed_code (MOED_OK is 0) and fills the struct
 * moed_error that it gets, which may be NULL. It sets outputs only on success. The library never
 * prints, exits or keeps global state.
 *
 * Threads. Any number of threads may use one session at once, each with requests of its own.
 * moed_detach must be the last call on the session. One thread at a time may consume a request
 * (moed_request_next, moed_request_free). Any thread may call moed_request_cancel and
 * moed_request_finish until moed_request_free.
 *
 * Back-pressure. The worker sends a limited number of events before the program consumes them. All
 * requests of a session share that limit. So a program that stops reading one request blocks the
 * session's others after a while: read all of them, cancel, or attach a second session.
 *
 * Structs. In a struct that the program fills, zero and NULL mean the default. One whose first
 * field is `size` must have its sizeof there: later versions of the library add fields at the end,
 * and the size says which of them the program knows. Structs that the library returns grow at the
 * end too, so a program does not copy them. A program that was linked with version 1.0 runs with
 * each 1.x.
 *
 * Fork. Sessions and what belongs to them are the process's that attached. In a child of fork(2)
 * their functions fail with MOED_ERROR_USAGE; the child attaches for itself. */
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
    MOED_ERROR_USAGE = 1,       /* a wrong argument: no prompt, a token id outside the vocabulary */
    MOED_ERROR_FORMAT = 2,      /* a file is malformed */
    MOED_ERROR_UNSUPPORTED = 3, /* well formed, but moed does not support it */
    MOED_ERROR_NOT_FOUND = 4,   /* no such deployment or process runs */
    MOED_ERROR_MEMORY = 5,
    MOED_ERROR_IO = 6,
    MOED_ERROR_PROTOCOL = 7,    /* the other side broke the protocol */
    MOED_ERROR_VERSION = 8,     /* library and deployment have different versions */
    MOED_ERROR_UNAVAILABLE = 9, /* the process is starting, restarting or gone */
    MOED_ERROR_TIMEOUT = 10,
    MOED_ERROR_LIMIT = 11, /* too many bytes for a message, states of a grammar, or requests */
    MOED_ERROR_CANCELLED = 12,
    MOED_ERROR_EXISTS = 13,
    MOED_ERROR_INTERNAL = 14,
    MOED_ERROR_BUSY = 15, /* too many requests wait already */
    MOED_ERROR_CONTEXT =
        16 /* too many tokens for the context or the KV cache: shorten the prompt */
};

/* Never changes. */
struct moed_error {
    enum moed_code code;
    bool retry;        /* the same call may succeed later; see moed_session_alive */
    char message[512]; /* one line: what failed, where, what to do */
};

/* The code's name in lower case ("not_found"); never NULL. */
MOED_API const char *moed_code_name(enum moed_code code);
/* The library's version ("0.1.0"). */
MOED_API const char *moed_version(void);
/* Frees memory that a function below returned; takes NULL. */
MOED_API void moed_free(void *memory);

/* ---- Sessions ---- */

struct moed_session;

struct moed_attach_options {
    size_t size;            /* sizeof(struct moed_attach_options) */
    const char *deployment; /* `moed up --name`; NULL: "default" */
    const char *client;     /* shown in the worker's log; NULL: the program's name */
    int timeout_ms; /* to attach, and for each moed_tokenize, moed_model_get, moed_chat_new, ...;
                     * 0: 30 s */
    /* How long the session waits for another worker where its worker has gone; 0: 2 minutes;
     * negative: it does not wait, and its requests fail */
    int resume_ms;
};

/* Attaches to a deployment's worker. options may be NULL. MOED_ERROR_NOT_FOUND: no such deployment
 * runs. MOED_ERROR_UNAVAILABLE with retry set: its worker is starting or being restarted. */
MOED_API MOED_MUST_USE enum moed_code moed_attach(const struct moed_attach_options *options,
                                                  struct moed_session **out,
                                                  struct moed_error *error);

/* False once the session has ended: no worker came back in time, or it broke the protocol. Every
 * request fails then, with MOED_ERROR_UNAVAILABLE and retry set. Detach, and attach again.
 *
 * A worker that dies does not end the session. The supervisor starts another; the library attaches
 * to it, and generations continue behind the tokens that came, with the same tokens as without the
 * crash: the program sees a pause (moed_result.resumed). Routing that was asked for, logits and
 * logprobs of a prompt cannot be continued: those requests fail. */
MOED_API bool moed_session_alive(const struct moed_session *session);
/* True once the deployment has another model than this session (`moed reload`), and for good once
 * the session has ended for that. Requests that run end with the model that began them, and so
 * would new ones for a while; then the session ends. Before a new request: attach again. Cheap
 * enough to ask before each request. */
MOED_API bool moed_session_replaced(const struct moed_session *session);

/* Ends the session and cancels its requests; takes NULL. The program must still free the requests;
 * moed_request_next fails on them with MOED_ERROR_CANCELLED. */
MOED_API void moed_detach(struct moed_session *session);

/* ---- Sampling ---- */

struct moed_bytes {
    const char *data;
    size_t len;
};

/* A parameter of struct moed_sampling with one of these values has the model's default: what the
 * model file says, or else temperature 0.8 and min_p 0.05. */
#define MOED_DEFAULT_FLOAT (-1e30f)
#define MOED_DEFAULT_COUNT UINT32_MAX
#define MOED_RANDOM_SEED   UINT64_MAX

struct moed_bias {
    uint32_t token;
    float bias;             /* -INFINITY: never this token */
    struct moed_bytes text; /* where len is not 0: each token of this text instead of `token` */
};

/* How tokens are chosen; docs/sampling.md describes the parameters and their order. All zero but
 * `size`: always the most probable token, every sampler off. moed_sampling_init: the model's
 * defaults and a random seed. Where 0 stands for another value, FLT_MIN has the effect of 0. A
 * parameter out of its range is an error that names it. */
struct moed_sampling {
    size_t size;                               /* sizeof(struct moed_sampling) */
    float temperature;                         /* 0: greedy, always the most probable token */
    uint32_t top_k;                            /* 0: off */
    float top_p;                               /* 0 or 1: off */
    float min_p;                               /* 0: off */
    float repetition_penalty;                  /* 0 or 1: off */
    uint32_t repetition_window;                /* how many tokens back the penalties look; 0: 64 */
    uint64_t seed;                             /* the same seed gives the same answer */
    float presence_penalty, frequency_penalty; /* 0: off */
    float typical_p;                           /* 0 or 1: off */
    float top_n_sigma;                         /* 0: off */
    float dynamic_temperature;                 /* range around temperature; 0: off */
    float dynamic_exponent;                    /* 0: 1 */
    float xtc_probability;                     /* 0: off */
    float xtc_threshold;                       /* 0: 0.1 */
    float dry_multiplier;                      /* 0: off */
    float dry_base;                            /* 0: 1.75 */
    uint32_t dry_allowed_length;               /* 0: 2 */
    uint32_t dry_window;                       /* how many tokens back; 0: all */
    const struct moed_bytes *dry_breakers;     /* none: "\n", ":", "\"", "*"; one empty: none */
    size_t dry_breaker_count;
    uint32_t mirostat;                /* 0: off; 2 */
    float mirostat_tau, mirostat_eta; /* 0: 5, 0.1 */
    float mirostat_mu;                /* to continue an answer: the last event's; 0: 2 tau */
    const char *order;                /* letters of samplers; "": none; NULL: the default */
    const struct moed_bias *bias;     /* the last one of a token counts */
    size_t bias_count;
};

/* Sets every parameter to the model's default and the seed to MOED_RANDOM_SEED. size:
 * sizeof(struct moed_sampling). */
MOED_API void moed_sampling_init(struct moed_sampling *sampling, size_t size);

/* ---- The model ---- */

/* Tokens for fill-in-the-middle; -1: the vocabulary has none. A prompt is `prefix`, the text before
 * the cursor, `suffix`, the text behind it, `middle`. */
struct moed_fim {
    int64_t prefix, suffix, middle;
    int64_t pad;
    int64_t repository, file; /* stand before their names */
};

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
    uint32_t context;                     /* most tokens of a request, prompt and answer */
    uint32_t context_trained;             /* the context in training */
    const char *device;                   /* the worker's device: "host" */
    int64_t bos, eos;                     /* begin and end token; -1: none */
    const char *chat_template;            /* the deployment's or the file's; empty: none */
    uint32_t dense_layers;                /* how many layers have no experts; they come first */
    const struct moed_sampling *sampling; /* the defaults: the deployment's, the file's */
    const uint32_t *end_tokens;           /* end-of-generation tokens */
    size_t end_token_count;
    const char *chat_template_tools; /* the variant for conversations with tools; empty: none */
    struct moed_fim fim;
    const char *quantization; /* of the file: "Q4_K_M"; empty: not known */
    /* Of the deployment: a JSON object, the variables of the chat template where a chat does not
     * set them; empty: none. */
    const char *chat_template_kwargs;
    uint32_t reasoning_budget; /* tokens of reasoning where a request sets no limit; 0: none */
    bool reproducible;         /* the deployment has --reproducible */
    const char *kv_type;       /* of the KV cache: "f16", "q8_0" */
    uint64_t identity;         /* a checksum of the file's metadata and size; 0: not known */
};

/* Gets the model's facts. The program frees them with moed_model_free. */
MOED_API MOED_MUST_USE enum moed_code
moed_model_get(struct moed_session *session, struct moed_model **out, struct moed_error *error);
MOED_API void moed_model_free(struct moed_model *model); /* takes NULL */

/* ---- Text and tokens ---- */

enum {
    MOED_ADD_SPECIAL = 1,  /* add the begin and end tokens of the model */
    MOED_PARSE_SPECIAL = 2 /* turn special tokens' texts into those tokens */
};

/* Turns text (any bytes) into token ids. flags: MOED_ADD_SPECIAL, MOED_PARSE_SPECIAL. The program
 * frees *tokens with moed_free. */
MOED_API MOED_MUST_USE enum moed_code moed_tokenize(struct moed_session *session, const char *text,
                                                    size_t text_bytes, unsigned flags,
                                                    uint32_t **tokens, size_t *token_count,
                                                    struct moed_error *error);
/* Bytes [start, end) of a text. */
struct moed_range {
    size_t start, end;
};

/* The same for a prompt that a chat template made: in the bytes of `plain`, which a user wrote, the
 * texts of control tokens stay text. The ranges are in order and do not overlap. */
MOED_API MOED_MUST_USE enum moed_code
moed_tokenize_ranges(struct moed_session *session, const char *text, size_t text_bytes,
                     unsigned flags, const struct moed_range *plain, size_t plain_count,
                     uint32_t **tokens, size_t *token_count, struct moed_error *error);
/* Turns token ids into bytes, which need not be UTF-8. special: include the texts of special
 * tokens. A NUL follows *text; text_bytes does not count it. The program frees *text with
 * moed_free. MOED_ERROR_USAGE: an id is outside the vocabulary. */
MOED_API MOED_MUST_USE enum moed_code moed_detokenize(struct moed_session *session,
                                                      const uint32_t *tokens, size_t token_count,
                                                      bool special, char **text, size_t *text_bytes,
                                                      struct moed_error *error);
/* Gets the bytes of each token by itself, texts of special tokens included: those of tokens[i] are
 * text[ends[i - 1]] (of the first: text[0]) to text[ends[i]]. At most 65536 tokens a call. The
 * program frees *text and *ends with moed_free. MOED_ERROR_USAGE: an id is outside the vocabulary.
 */
MOED_API MOED_MUST_USE enum moed_code moed_token_texts(struct moed_session *session,
                                                       const uint32_t *tokens, size_t token_count,
                                                       char **text, size_t **ends,
                                                       struct moed_error *error);

/* ---- Requests ---- */

/* What to record of a generation: the experts that each layer chose, as MOED_EVENT_ROUTING. It
 * slows down only the requests that ask for it. */
struct moed_record_options {
    size_t size; /* sizeof(struct moed_record_options) */
    bool gate;   /* record the gates' probabilities */
    /* Record the gates' inputs at positions p with p % hidden_every == hidden_phase; hidden_every
     * 0: nowhere. */
    uint32_t hidden_every, hidden_phase;
    bool stepwise;    /* compute the prompt one token at a time, as an answer is */
    bool prompt_only; /* end the request once the prompt is computed, without an answer */
};

enum moed_grammar_kind {
    MOED_GRAMMAR_NONE = 0,
    MOED_GRAMMAR_JSON_SCHEMA, /* JSON Schema 2020-12 */
    MOED_GRAMMAR_GBNF,        /* rules in llama.cpp's notation, from `root` */
    MOED_GRAMMAR_REGEX,       /* an ECMA-262 expression that matches the whole answer */
    MOED_GRAMMAR_CHOICES      /* a JSON array of strings: the answer is one of them */
};

/* What the answer's text must satisfy, whatever the sampling; docs/structured-output.md. The worker
 * refuses a definition that it cannot express exactly: MOED_ERROR_USAGE, MOED_ERROR_UNSUPPORTED or
 * MOED_ERROR_LIMIT, with its place (a JSON pointer, or line and column). The answer ends where
 * nothing can follow: MOED_REASON_END, with result.end_token -1; so also before min_tokens. End
 * tokens and stop tokens come only where it may end. Only max_tokens, stop strings, the context and
 * cancellation cut it short. Not together with ignore_end. */
struct moed_grammar {
    size_t size; /* sizeof(struct moed_grammar) */
    enum moed_grammar_kind kind;
    const char *text;
    size_t text_bytes; /* 0: up to its NUL */
    /* The grammar binds behind the first occurrence of this text in the answer, in which texts of
     * control tokens count; no such text: from the first token. At most 255 bytes. */
    const char *trigger;
    size_t trigger_bytes;  /* 0: up to its NUL */
    bool trigger_required; /* the answer does not end before the trigger */
    /* Only for MOED_GRAMMAR_GBNF: texts of control tokens, at most 11. Where a literal of the
     * grammar contains one of them, the control token can stand for it; elsewhere control tokens
     * are not allowed. A text that is no control token of the model has no effect. */
    const char *const *marks;
    size_t mark_count;
    /* The trigger does not count in reasoning, from reasoning_begin at the answer's start, behind
     * white space (NULL: from the start), to reasoning_end (NULL: there is none). At most 255
     * bytes each. */
    const char *reasoning_begin, *reasoning_end;
};

/* Limits the reasoning of an answer. Once it has as many tokens the forced tokens come next, and
 * the answer goes on behind them. Nothing is forced where max_tokens or the context has no space
 * for them and one more: the answer ends there. Nor where the grammar refuses them. */
struct moed_reasoning_limit {
    size_t size;     /* sizeof(struct moed_reasoning_limit) */
    uint32_t tokens; /* of reasoning, its marks included; at least 1 */
    /* The text that reasoning begins with, which stands first in the answer, but for whitespace.
     * NULL: the prompt has it. Texts of control tokens count, as in `ends`. At most 255 bytes. */
    const char *begin;
    const char *const *ends; /* each of these texts, at most 8, ends reasoning */
    size_t end_count;
    const uint32_t *forced; /* 1 to 64 tokens */
    size_t forced_count;
    const uint32_t *forbidden; /* at most 64 tokens, never chosen behind the forced ones */
    size_t forbidden_count;
};

enum moed_priority {
    MOED_PRIORITY_INTERACTIVE = 0,
    MOED_PRIORITY_BATCH = 1 /* starts only where no interactive request waits */
};

struct moed_generate_options {
    size_t size;            /* sizeof(struct moed_generate_options) */
    const char *prompt;     /* text, any bytes; NULL: `tokens` */
    size_t prompt_bytes;    /* 0: up to its NUL */
    const uint32_t *tokens; /* the prompt as ids */
    size_t token_count;
    bool parse_special;  /* turn special tokens' texts in the prompt into those tokens */
    bool ignore_end;     /* go on past end-of-generation tokens */
    uint32_t max_tokens; /* 0: until the context is full */
    const struct moed_sampling *sampling; /* NULL: always the most probable token */
    const struct moed_bytes *stop;        /* end the answer before any of these texts */
    size_t stop_count;
    const struct moed_record_options *record; /* NULL: record nothing */
    uint32_t min_tokens;         /* nothing but max_tokens and the context ends the answer before */
    const uint32_t *stop_tokens; /* these end the answer, as end-of-generation tokens do */
    size_t stop_token_count;
    bool special_text;     /* the answer's text includes the texts of special tokens */
    bool logprobs;         /* log-probabilities of the answer's tokens, */
    uint32_t top_logprobs; /* and of this many most probable tokens at each place; at most 64 */
    bool progress;         /* MOED_EVENT_PROGRESS while the prompt is computed */
    const struct moed_grammar *grammar; /* NULL: any answer */
    enum moed_priority priority;
    /* Fails with MOED_ERROR_TIMEOUT, without retry, if it has not started by then; 0: none. If its
     * worker dies, it counts as started where an event of it has come: tokens or progress. */
    uint32_t deadline_ms;
    /* The prefix cache gives this generation only what generations with the same salt computed, so
     * that users of different salts cannot learn each other's prompts from it. 0: none. */
    uint64_t cache_salt;
    const struct moed_reasoning_limit *reasoning; /* NULL: none */
    /* Not NULL: `prompt` is what a chat template made, with parse_special. It gets no end token,
     * and in the bytes of these ranges, which a user wrote, the texts of control tokens stay text
     * (see moed_tokenize_ranges, whose round trip this saves). */
    const struct moed_range *plain;
    size_t plain_count;
    /* A number of the program's choice for the client of this request. Where requests wait, the
     * program's clients take turns. 0: cache_salt is the number. */
    uint64_t client;
    /* Drafts that a step computes for this answer (docs/speculation.md): at most so many, 0: as the
     * deployment has it; or none. The tokens are the same. */
    uint32_t max_drafts;
    bool no_drafts;
    /* What the answer is expected to be, such as a text of which it changes a part. The
     * answer is the same; where it follows the prediction, it takes fewer steps
     * (docs/speculation.md). Tokens that do not fit into the context count for nothing. */
    const uint32_t *prediction;
    size_t prediction_count;
};

enum moed_reason {
    MOED_REASON_NONE = 0,     /* not a generation */
    MOED_REASON_END = 1,      /* an end-of-generation token, or moed_request_finish */
    MOED_REASON_STOP = 2,     /* a stop string */
    MOED_REASON_LENGTH = 3,   /* max_tokens */
    MOED_REASON_CONTEXT = 4,  /* the context is full */
    MOED_REASON_CANCELLED = 5 /* by moed_request_cancel or the callback */
};

/* The reason in lower case ("length"); never NULL. */
MOED_API const char *moed_reason_name(enum moed_reason reason);

/* Where the program gives the struct itself (moed_generate), it sets `size` before. */
struct moed_result {
    size_t size; /* sizeof(struct moed_result) */
    enum moed_reason reason;
    uint32_t prompt_tokens;
    uint32_t cached_tokens; /* of the prompt: not computed, because the KV cache had them */
    uint32_t generated_tokens;
    uint64_t queue_ns;   /* from submission to the first computation */
    uint64_t prefill_ns; /* from there to the first token */
    uint64_t decode_ns;  /* from the first token to the last */
    /* How often another worker continued the answer. Then prompt_tokens, cached_tokens and queue_ns
     * are those of the first worker that sent tokens, the other times are of the whole answer, and
     * drafted_tokens and accepted_tokens are the last worker's. */
    uint32_t resumed;
    int64_t end_token;         /* MOED_REASON_END: the token that ended the answer; else -1 */
    int64_t stop_index;        /* MOED_REASON_STOP: the index in options.stop; else -1 */
    uint64_t seed;             /* the one that was used */
    uint32_t drafted_tokens;   /* drafts that were computed (docs/speculation.md) */
    uint32_t accepted_tokens;  /* of these, right: as many tokens took no step of their own */
    uint32_t reasoning_tokens; /* of a chat's answer: those of its reasoning, marks included */
    /* Of options.prediction, as far as it fits into the context; of these, the tokens that the
     * answer has, too, at their place. */
    uint32_t prediction_tokens;
    uint32_t predicted_tokens;
};

enum moed_event_kind {
    /* tokens, token_count, text, text_bytes: one token or several; where they were asked for,
     * logprobs, logprob_count and top_* of these tokens */
    MOED_EVENT_TOKENS = 1,
    MOED_EVENT_ROW = 2, /* row, logits, logit_count */
    /* result; the last event of a request. Where an answer's log-probabilities were asked for and
     * result->end_token ended it, which was not forced: logprobs, logprob_count (1) and top_* of
     * that token */
    MOED_EVENT_DONE = 3,
    MOED_EVENT_LOGPROBS = 4, /* first, logprobs, logprob_count, top_* */
    MOED_EVENT_ROUTING = 5,  /* routing */
    MOED_EVENT_PROGRESS = 6  /* progress; only where it was asked for */
};

/* What the gates chose for token_count tokens of prompt and answer, from position `first` on. A
 * request's events come in order and cover all its tokens but the last of the answer, which is not
 * computed. L: the layers with experts, moed_model.layers - moed_model.dense_layers. */
struct moed_routing {
    size_t first, token_count;
    const uint16_t *selected; /* [token_count][L][experts_used], the first choice first */
    size_t selected_count;    /* values in `selected` */
    const float *gate;        /* [token_count][L][experts]: probabilities; NULL: not recorded */
    size_t gate_count;
    const uint32_t *hidden_at; /* [hidden_at_count]: the positions of the gate inputs */
    size_t hidden_at_count;
    const uint16_t *hidden; /* gate inputs, [hidden_at_count][L][d_model], IEEE half precision */
    size_t hidden_count;
};

/* How far the prompt is. */
struct moed_progress {
    uint32_t computed, prompt_tokens; /* computed: with the cached tokens */
    uint64_t ns;                      /* since the first computation */
    uint32_t cached_tokens;           /* not computed: the prefix cache had them */
};

enum moed_part_kind {
    MOED_PART_CONTENT = 1,   /* text */
    MOED_PART_REASONING = 2, /* text */
    MOED_PART_CALL = 3,      /* a call begins: call, id, name */
    MOED_PART_ARGUMENTS = 4, /* call, text: the next part of the JSON text of its arguments */
    MOED_PART_CALL_END = 5   /* call, complete */
};

/* A part of a chat's answer; see moed_chat_start. */
struct moed_part {
    enum moed_part_kind kind;
    uint32_t call; /* which of the answer's calls, from 0 */
    const char *id, *name;
    const char *text; /* not NUL-terminated */
    size_t text_bytes;
    bool complete; /* the arguments are a whole JSON object */
};

/* What a request has produced. The library owns it: it is valid until the next moed_request_next or
 * moed_request_free of the request, or until the callback returns. */
struct moed_event {
    enum moed_event_kind kind;
    const uint32_t *tokens;
    size_t token_count;
    const char *text; /* not NUL-terminated; empty while a character is incomplete */
    size_t text_bytes;
    uint32_t row; /* from 0, in order */
    const float *logits;
    size_t logit_count; /* the vocabulary's size */
    const struct moed_result *result;
    size_t first;          /* MOED_EVENT_LOGPROBS: logprobs[i] is of the prompt's token first + i */
    const float *logprobs; /* natural logarithms, at most 0, of the model's own probabilities */
    size_t logprob_count;
    /* The top_count most probable tokens at each place of `logprobs`, the most probable first:
     * [logprob_count][top_count]. */
    const uint32_t *top_tokens;
    const float *top_logprobs;
    size_t top_count;
    float mirostat_mu; /* after the last of `tokens`; see struct moed_sampling */
    const struct moed_routing *routing;
    const struct moed_progress *progress;
    /* Of a chat, in MOED_EVENT_TOKENS and MOED_EVENT_DONE: what the text adds to the answer. */
    const struct moed_part *const *parts;
    size_t part_count;
    bool forced; /* `tokens` are those of moed_reasoning_limit; they have no log-probabilities */
    /* [token_count]: how many bytes of the answer's text each token is, in order. Text that is held
     * back comes with a later event. NULL: the worker is of an earlier release. */
    const uint32_t *token_bytes;
};

struct moed_request;

/* Submits a prompt; the answer comes as events. Copies the options. It does not wait for the
 * session's worker, so an event loop may call it. It may ask memd what the workers do, and attach
 * to another one where there are several: each for a quarter of a second at most, and a process
 * that did not answer is left alone for some seconds. */
MOED_API MOED_MUST_USE enum moed_code
moed_generate_start(struct moed_session *session, const struct moed_generate_options *options,
                    struct moed_request **out, struct moed_error *error);

/* Starts `count` answers to one prompt: the same as `count` calls of moed_generate_start with the
 * seeds seed, seed + 1, ... The prompt is computed once. Fills requests[count]. On an error none is
 * started. Requests with one prompt that a program starts itself share its computation as well. */
MOED_API MOED_MUST_USE enum moed_code
moed_generate_answers_start(struct moed_session *session,
                            const struct moed_generate_options *options, size_t count,
                            struct moed_request **requests, struct moed_error *error);

/* Requests the logits that follow each of the tokens: one MOED_EVENT_ROW a token, in order, then
 * MOED_EVENT_DONE. stepwise: compute one token at a time, as decoding does, not one batch. */
MOED_API MOED_MUST_USE enum moed_code moed_logits_start(struct moed_session *session,
                                                        const uint32_t *tokens, size_t token_count,
                                                        bool stepwise, struct moed_request **out,
                                                        struct moed_error *error);

struct moed_logprobs_options {
    size_t size;            /* sizeof(struct moed_logprobs_options) */
    const uint32_t *tokens; /* two at least */
    size_t token_count;
    size_t first; /* the first token that is scored: 1 to token_count - 1; 0 means 1 */
    uint32_t top; /* also this many of the most probable tokens at each place; at most 64 */
    enum moed_priority priority; /* this and the following: as in moed_generate_options */
    uint64_t cache_salt, client;
};

/* Requests the log-probability of each of tokens[first ...] after the tokens before it: one or more
 * MOED_EVENT_LOGPROBS, which cover each token once and in order, then MOED_EVENT_DONE. The
 * events are much smaller than those of moed_logits_start.
 *
 * It takes tokens before `first` from the prefix cache and leaves all there: a generation with the
 * same tokens, started behind it, waits for them and does not compute them again. */
MOED_API MOED_MUST_USE enum moed_code
moed_logprobs_start(struct moed_session *session, const struct moed_logprobs_options *options,
                    struct moed_request **out, struct moed_error *error);

/* Gets the next event. Waits at most timeout_ms (0: does not wait; -1: no limit).
 * MOED_ERROR_TIMEOUT with retry set: no event came; without: the request has ended,
 * for instance at its deadline. After MOED_EVENT_DONE or any other error, each call returns
 * the same again. */
MOED_API MOED_MUST_USE enum moed_code moed_request_next(struct moed_request *request,
                                                        int timeout_ms,
                                                        const struct moed_event **event,
                                                        struct moed_error *error);

/* Returns a descriptor for poll(2) and event loops: it is readable while moed_request_next can
 * return without waiting. The request owns it; do not read or close it. -1: the process has no
 * descriptor left. */
MOED_API int moed_request_fd(struct moed_request *request);

/* Tells the worker to stop. Events that it has already sent still come, then MOED_EVENT_DONE with
 * MOED_REASON_CANCELLED, unless the request was done before. Where the worker has gone and the
 * session waits for another one, that comes at once. A worker that lives and does not answer delays
 * it: moed_request_free does not wait. */
MOED_API void moed_request_cancel(struct moed_request *request);

/* The same where the program has all of the answer that it wants: the request ends with
 * MOED_REASON_END and counts as complete. A chat with one_call does this itself, and
 * drops the events behind its call. */
MOED_API void moed_request_finish(struct moed_request *request);

/* Frees the request, and cancels it if it still runs; takes NULL. */
MOED_API void moed_request_free(struct moed_request *request);

/* ---- Blocking calls ---- */

/* moed_generate, moed_logits and moed_logprobs call it for each event but the last
 * (MOED_EVENT_DONE), on their own thread. Return 0 to go on, anything else to cancel. It may use
 * the session, but not detach it. */
typedef int moed_callback(void *arg, const struct moed_event *event);

/* Does moed_generate_start, then calls callback until the end. A cancelled generation is not an
 * error: its result has MOED_REASON_CANCELLED. result may be NULL. */
MOED_API MOED_MUST_USE enum moed_code moed_generate(struct moed_session *session,
                                                    const struct moed_generate_options *options,
                                                    moed_callback *callback, void *arg,
                                                    struct moed_result *result,
                                                    struct moed_error *error);
/* The same with moed_logits_start. MOED_ERROR_CANCELLED: the callback cancelled it. */
MOED_API MOED_MUST_USE enum moed_code moed_logits(struct moed_session *session,
                                                  const uint32_t *tokens, size_t token_count,
                                                  bool stepwise, moed_callback *callback, void *arg,
                                                  struct moed_error *error);

/* The same with moed_logprobs_start. MOED_ERROR_CANCELLED: the callback cancelled it. */
MOED_API MOED_MUST_USE enum moed_code moed_logprobs(struct moed_session *session,
                                                    const struct moed_logprobs_options *options,
                                                    moed_callback *callback, void *arg,
                                                    struct moed_error *error);

/* ---- Chat ---- */

/* A conversation with the model, in its chat template. One thread at a time uses it. It may
 * outlive moed_detach, but then only moed_chat_free and what reads it work. */
struct moed_chat;

enum moed_thinking { MOED_THINKING_DEFAULT = 0, MOED_THINKING_ON = 1, MOED_THINKING_OFF = 2 };

enum moed_tool_choice {
    MOED_TOOLS_AUTO = 0,     /* the model decides; a call that it begins is well formed */
    MOED_TOOLS_NONE = 1,     /* it does not see the tools */
    MOED_TOOLS_REQUIRED = 2, /* the answer is at least one call */
    MOED_TOOLS_NAMED = 3     /* the answer is one call of tool_name */
};

struct moed_chat_options {
    size_t size;               /* sizeof(struct moed_chat_options) */
    const char *chat_template; /* Jinja (docs/chat-templates.md); NULL: the model's */
    const char *tools;         /* JSON: an array of tools in OpenAI's form; NULL: none */
    enum moed_tool_choice tool_choice;
    const char *tool_name;       /* MOED_TOOLS_NAMED */
    bool one_call;               /* at most one call in an answer */
    bool whole_calls;            /* a call's parts come together, once it is complete */
    enum moed_thinking thinking; /* the template's enable_thinking */
    /* "low", "medium", "high", ...; NULL: the template's default. With MOED_THINKING_DEFAULT "none"
     * switches thinking off, any other but "minimal" on, unless `variables` has the switch. */
    const char *reasoning_effort;
    const char *variables; /* JSON: an object of more variables of the template; NULL: none */
};

/* Begins a conversation. options: NULL: the model's template without tools. MOED_ERROR_USAGE:
 * malformed JSON or tools; MOED_ERROR_FORMAT, MOED_ERROR_UNSUPPORTED: a template that cannot run.
 */
MOED_API MOED_MUST_USE enum moed_code moed_chat_new(struct moed_session *session,
                                                    const struct moed_chat_options *options,
                                                    struct moed_chat **out,
                                                    struct moed_error *error);
/* Replaces the options for the answers that follow. */
MOED_API MOED_MUST_USE enum moed_code moed_chat_configure(struct moed_chat *chat,
                                                          const struct moed_chat_options *options,
                                                          struct moed_error *error);
MOED_API void moed_chat_free(struct moed_chat *chat); /* takes NULL */

/* Adds a message. role: "system", "user" or "assistant"; a last message of the assistant without
 * calls is continued by the answer. text: UTF-8; text_bytes 0: up to its NUL. */
MOED_API MOED_MUST_USE enum moed_code moed_chat_add(struct moed_chat *chat, const char *role,
                                                    const char *text, size_t text_bytes,
                                                    struct moed_error *error);
/* Adds what a tool returned for the call with this id. */
MOED_API MOED_MUST_USE enum moed_code moed_chat_add_result(struct moed_chat *chat,
                                                           const char *call_id, const char *text,
                                                           size_t text_bytes,
                                                           struct moed_error *error);
/* Adds messages in OpenAI's form: a JSON object or an array of them. json_bytes 0: up to its NUL.
 */
MOED_API MOED_MUST_USE enum moed_code moed_chat_add_json(struct moed_chat *chat, const char *json,
                                                         size_t json_bytes,
                                                         struct moed_error *error);
/* Adds what a request of moed_chat_start has answered so far: content, reasoning, complete calls.
 * To a last message of the assistant, which the request continued, it adds the content, and the
 * reasoning where that message's content is inside reasoning. A message with calls is not
 * continued: the answer is another message. */
MOED_API MOED_MUST_USE enum moed_code moed_chat_add_answer(struct moed_chat *chat,
                                                           const struct moed_request *request,
                                                           struct moed_error *error);
/* How many messages there are. */
MOED_API size_t moed_chat_count(const struct moed_chat *chat);
/* Drops all messages but the first `count`. */
MOED_API void moed_chat_truncate(struct moed_chat *chat, size_t count);
/* All messages in OpenAI's form, a JSON array. A NUL follows *json. The program frees *json with
 * moed_free. */
MOED_API MOED_MUST_USE enum moed_code moed_chat_json(const struct moed_chat *chat, char **json,
                                                     size_t *json_bytes, struct moed_error *error);
/* The tokens of the prompt that an answer would get now, from the worker. The program frees *tokens
 * with moed_free. */
MOED_API MOED_MUST_USE enum moed_code moed_chat_tokens(struct moed_chat *chat, uint32_t **tokens,
                                                       size_t *token_count,
                                                       struct moed_error *error);

/* Starts an answer to the conversation, as moed_generate_start does to a prompt, which the options
 * leave out. options: NULL: the model's defaults of sampling. Its events have parts: content,
 * reasoning and calls, which the library finds in the text; the text itself may have their marks. A
 * grammar binds the content, behind reasoning; where the model may call tools of its own accord, it
 * can only be a JSON schema. The conversation does not change: see moed_chat_add_answer. It waits
 * as little as moed_generate_start: the worker makes tokens of the prompt. */
MOED_API MOED_MUST_USE enum moed_code moed_chat_start(struct moed_chat *chat,
                                                      const struct moed_generate_options *options,
                                                      struct moed_request **out,
                                                      struct moed_error *error);
/* moed_chat_start, then calls callback for each event, MOED_EVENT_DONE included, because it may
 * have parts. At the end, also where the callback cancels, it adds the answer to the conversation.
 * callback and result may be NULL. */
MOED_API MOED_MUST_USE enum moed_code moed_chat_answer(struct moed_chat *chat,
                                                       const struct moed_generate_options *options,
                                                       moed_callback *callback, void *arg,
                                                       struct moed_result *result,
                                                       struct moed_error *error);

/* ---- Monitoring ---- */

/* Gets the metrics of one process ("memd", "worker", "cpuexec") of a deployment (NULL: "default")
 * in Prometheus' text format, without a session. The program frees *text with moed_free. */
MOED_API MOED_MUST_USE enum moed_code moed_metrics(const char *deployment, const char *process,
                                                   char **text, struct moed_error *error);

#ifdef __cplusplus
}
#endif

#endif
