/* What a request asks for, whichever API it came by, and the tables that say how each API's
 * parameters become it.
 *
 * A parameter has a row: `take` checks its value and stores it, or `refused` says why moed does not
 * have it. A refused parameter passes where its value changes nothing (null, false, 0, "", [], {},
 * or the row's `neutral`). A parameter without a row is ignored, as clients of other servers
 * expect; the access log and the header x-moed-ignored name it. */
#ifndef MOED_HTTP_ASK_H
#define MOED_HTTP_ASK_H

#include "chat/chat_template.h"
#include "client/http/server/access_log.h"
#include "client/http/server/problem.h"
#include "client/include/moed.h"
#include "toolcall/tools.h"

#include <jansson.h>
#include <stdbool.h>

#define ASK_STOPS_MAX     128 /* as many as the worker takes */
#define ASK_CHOICES_MAX   128 /* prompts times n */
#define ASK_BREAKERS_MAX  16
#define ASK_BREAKER_BYTES 40 /* as many as the worker takes */
#define ASK_BIASES_MAX    4096
#define ASK_IGNORED_NAME  32 /* bytes of a name that has no row */
#define ASK_TOP_MAX       64 /* most probable tokens at a place, as many as the worker gives */

/* Whether and how tools may be called. */
enum ask_calls { CALLS_AUTO, CALLS_NONE, CALLS_REQUIRED, CALLS_NAMED };

/* Which name gave `max_tokens`: of several in a request the last of these counts. */
enum limit_name { LIMIT_NONE, LIMIT_MAX_TOKENS, LIMIT_N_PREDICT, LIMIT_COMPLETION_TOKENS };

struct ask_prompt {
    const char *text; /* borrowed from `root`; NULL: ids, or the rendered conversation */
    size_t text_bytes;
    const json_t *joined; /* borrowed: strings and ids in one, which prompt_encode makes `tokens` */
    uint32_t *tokens;     /* owned */
    size_t token_count;
    char *shown; /* of ids, where the answer repeats them; owned */
    size_t shown_bytes;
    uint32_t *offsets; /* [token_count]: in the text, where the answer repeats it with
                          log-probabilities (text_place.h); owned */
};

/* Fill-in-the-middle; see fill.h. The prompts are what stands before the cursor. */
struct ask_fill {
    bool wanted;
    bool infill;              /* as /infill: with the marks of files, and cut to the context */
    struct moed_bytes prefix; /* before each prompt; of /infill */
    struct moed_bytes suffix; /* behind the cursor */
    const json_t *extra;      /* borrowed: [{"filename", "text"}, ...]; NULL: none; of /infill */
};

struct ask {
    json_t *root; /* the body; the fields below borrow from it */
    const char *model;
    bool stream, include_usage;
    bool return_progress;   /* a stream says how far the prompt is */
    bool timings_per_token; /* its chunks have the times so far */
    bool usage_in_chunks;   /* each chunk has the usage so far; only with include_usage */
    enum moed_priority priority;
    bool has_keep;
    double keep_s; /* how long a model on demand stays loaded; below 0: for ever */
    bool echo;     /* the answer begins with the prompt */
    struct ask_fill fill;
    bool prompt_only;        /* nothing is generated: the KV cache gets the prompt */
    uint32_t predict_ms;     /* an answer that takes longer ends behind a line; 0: no limit */
    json_t *response_fields; /* borrowed: response_fields.h; NULL: all */
    uint32_t n;
    uint32_t max_tokens; /* 0: until the context is full; none where `echo` and it was given */
    enum limit_name limit_name;
    bool plain_prompt; /* no begin or end token is added to a prompt of text */
    bool max_tokens_given, ignore_end, ban_end, parse_special, add_special, special_text;
    struct moed_sampling sampling; /* a 0 is a 0; ask_sampling adds what follows */
    bool seeded;
    bool dry_off;    /* a window of none */
    bool repeat_off; /* the same, of the penalties */
    bool ordered;    /* `order` is the request's, an empty one too */
    char order[16];
    struct moed_bytes breakers[ASK_BREAKERS_MAX];
    size_t breaker_count;
    json_t *breaker_list;   /* owned; where they came as a text. NULL: they are in `root` */
    struct moed_bias *bias; /* owned */
    size_t bias_count;
    uint32_t min_tokens;
    uint32_t max_drafts; /* 0: as the deployment has it */
    bool no_drafts;
    struct moed_bytes stops[ASK_STOPS_MAX];
    size_t stop_count;
    uint32_t *stop_tokens; /* owned */
    size_t stop_token_count;
    bool logprobs;
    uint32_t top_logprobs;
    json_t *prediction_text; /* owned: what the answer is expected to be; NULL: nothing */
    struct {
        uint32_t *tokens; /* owned; found on the session's thread */
        size_t token_count;
    } prediction;
    bool return_tokens; /* their ids */
    bool names_are_ids; /* of tokens with log-probabilities */
    bool with_pieces;   /* of /tokenize */
    struct ask_prompt *prompts;
    size_t prompt_count;
    json_t *messages;             /* owned, as chat_render takes them; NULL: no conversation */
    json_t *call_names;           /* owned: of the calls in `messages`, by their ids; NULL: none */
    size_t call_count;            /* of calls in `messages` */
    bool truncates;               /* a conversation that is too long is cut: truncation.h */
    uint32_t num_ctx;             /* Ollama's context, which has no effect; 0: none */
    json_t *tools;                /* owned, in OpenAI's form; NULL: none */
    json_t *custom_tools;         /* owned: names of those that custom_tool.h made functions of, as
                                     members; NULL: none */
    struct tool_list *tool_list;  /* owned; of `tools` */
    enum ask_calls calls;         /* only where there are tools */
    const char *call_name;        /* CALLS_NAMED */
    const json_t *allowed;        /* borrowed: the tools that may be called; NULL: all */
    bool one_call;                /* no parallel calls */
    json_t *kwargs;               /* borrowed; NULL: none */
    enum moed_grammar_kind form;  /* what the answer's text must satisfy */
    char *form_text;              /* owned; of `form` */
    bool form_is_loose;           /* a schema of which what cannot be followed is left out */
    const char *reasoning_effort; /* NULL: the template's */
    enum chat_switch thinking;    /* the request's own switch; see ask_thinking */
    bool thinks;                  /* it has an effort above minimal, or leaves it to the model */
    uint32_t reasoning_budget;    /* tokens; 0: no limit */
    bool budget_given;            /* else the deployment's holds */
    bool reasoning_as_content;    /* it is not separated */
    bool reasoning_hidden;        /* it is separated and dropped */
    enum chat_end end;
    uint64_t id_seed; /* random: the ids of calls follow from it */
    /* names of parameters without a row, separated by commas; ",..." where more do not fit */
    char ignored[ACCESS_IGNORED];
};

struct parameter {
    const char *name;
    /* NULL: see `refused`; both NULL: it has no effect here, and is taken */
    bool (*take)(struct ask *ask, json_t *value, struct problem *p);
    const char *refused;
    const char *neutral;          /* a string or number that passes; NULL: none */
    const struct parameter *more; /* a table that this one includes; `name` is its purpose */
};

/* Zero and defaults: those of the model, for sampling. */
void ask_init(struct ask *ask);
void ask_fini(struct ask *ask);
/* Frees what only the rendering of the prompt needs: an answer may last long. */
void ask_release_prompt(struct ask *ask);

/* Parses a body as a JSON object; ask owns it. False: *p is set. */
bool ask_parse(struct ask *ask, const char *body, size_t len, struct problem *p);
/* Takes the members of `object` by the table, which ends with a NULL name. Removes those without a
 * row, and arrays, objects and long texts of rows without `take`. */
bool ask_take(struct ask *ask, const struct parameter *table, json_t *object, struct problem *p);
/* Forbids a token, whatever its biases. False: no memory. */
bool ask_ban_token(struct ask *ask, uint32_t token);
/* Notes for the access log and the reply's header that `name` has no effect. */
void ask_ignore(struct ask *ask, const char *name);
/* The sampling parameters as libmoed has them, with pointers into *ask. */
struct moed_sampling ask_sampling(const struct ask *ask);
/* What answers say of them: the request's, or else the model's; a 0 is a 0, and pointers are
 * borrowed of the request or the model. model: NULL where the worker has not told its facts yet. */
struct moed_sampling ask_shown(const struct ask *ask, const struct moed_model *model);
/* The template's switch: the request's own, else on where `thinks` is set (chat/effort.h). */
enum chat_switch ask_thinking(const struct ask *ask);
/* The model's limit of reasoning, where the request has none of its own. */
void ask_take_budget(struct ask *ask, const struct moed_model *model);
/* Sets a random seed where the request has none. */
void ask_seed(struct ask *ask);
/* Refuses a limit of 0, of an API that generates at least one token. own: the API's name for
 * LIMIT_COMPLETION_TOKENS. */
bool ask_check_limit(const struct ask *ask, const char *own, struct problem *p);
/* Where no tokens are asked for: see `prompt_only`. */
void ask_prompt_only(struct ask *ask);
/* On the session's thread: finds the text of a prompt that came as ids, where the answer repeats
 * it. */
enum moed_code ask_show_prompt(const struct ask *ask, struct ask_prompt *prompt,
                               struct moed_session *session, struct moed_error *error);
/* The text of a prompt that the answer repeats. Borrowed. */
struct moed_bytes ask_shown_prompt(const struct ask_prompt *prompt);
/* Appends prompts; at most ASK_CHOICES_MAX. */
bool ask_add_prompt(struct ask *ask, const struct ask_prompt *prompt, struct problem *p);

/* Parameters that several APIs share. */
bool take_model(struct ask *ask, json_t *value, struct problem *p);
bool take_stream(struct ask *ask, json_t *value, struct problem *p);
bool take_stream_options(struct ask *ask, json_t *value, struct problem *p);
/* max_tokens, n_predict, max_completion_tokens: -1 is no limit. */
bool take_max_tokens(struct ask *ask, json_t *value, struct problem *p);
bool take_n_predict(struct ask *ask, json_t *value, struct problem *p);
bool take_max_completion_tokens(struct ask *ask, json_t *value, struct problem *p);
bool take_n(struct ask *ask, json_t *value, struct problem *p);
bool take_temperature(struct ask *ask, json_t *value, struct problem *p);
bool take_top_p(struct ask *ask, json_t *value, struct problem *p);
bool take_top_k(struct ask *ask, json_t *value, struct problem *p);
bool take_min_p(struct ask *ask, json_t *value, struct problem *p);
bool take_repetition_penalty(struct ask *ask, json_t *value, struct problem *p);
bool take_repetition_window(struct ask *ask, json_t *value, struct problem *p);
bool take_seed(struct ask *ask, json_t *value, struct problem *p);
bool take_stop(struct ask *ask, json_t *value, struct problem *p);
bool take_echo(struct ask *ask, json_t *value, struct problem *p);
/* A text that becomes a prompt, the empty one too. */
bool take_text_prompt(struct ask *ask, json_t *value, struct problem *p);
/* The text behind the cursor; "": no fill-in-the-middle. */
bool take_fill_suffix(struct ask *ask, json_t *value, struct problem *p);
bool take_ignore_end(struct ask *ask, json_t *value, struct problem *p);
/* Whether texts of control tokens in a prompt become those tokens. */
bool take_parse_special(struct ask *ask, json_t *value, struct problem *p);
/* vLLM's: whether a prompt of text gets the model's begin and end tokens. */
bool take_add_special_tokens(struct ask *ask, json_t *value, struct problem *p);
/* OpenAI's: "flex" and "batch" let other requests go first. */
bool take_service_tier(struct ask *ask, json_t *value, struct problem *p);

bool take_min_tokens(struct ask *ask, json_t *value, struct problem *p);
bool take_top_logprobs(struct ask *ask, json_t *value, struct problem *p);
bool take_logprobs(struct ask *ask, json_t *value, struct problem *p);
bool take_kwargs(struct ask *ask, json_t *value, struct problem *p);
/* "none" switches thinking off; any other effort but "minimal" wants some. */
bool take_effort(struct ask *ask, json_t *value, struct problem *p);
bool take_enable_thinking(struct ask *ask, json_t *value, struct problem *p);
/* Ollama's: true, false or an effort. */
bool take_think(struct ask *ask, json_t *value, struct problem *p);

/* What OpenAI's APIs and Ollama's options share (sampling_parameters.c): samplers and penalties by
 * llama-server's, vLLM's and Ollama's names. */
extern const struct parameter sampling_parameters[];
/* What chats but Ollama's share (chat_parameters.c): reasoning and the end of the prompt. */
extern const struct parameter chat_extensions[];

/* Values of parameters: false where the type is wrong or the value out of range. */
bool read_number(const json_t *value, double least, double most, double *out, struct problem *p);
/* One that is written as a real (8.0), too. */
bool read_integer(const json_t *value, long long least, long long most, long long *out,
                  struct problem *p);
bool read_bool(const json_t *value, bool *out, struct problem *p);
/* out: borrowed. */
bool read_text(const json_t *value, struct moed_bytes *out, struct problem *p);
/* False: it is no integer of 64 bits, written as one or as a real. */
bool integer_of(const json_t *value, long long *out);
/* Reads an array of token ids. *tokens: owned by the caller. */
bool read_token_ids(const json_t *array, uint32_t **tokens, size_t *count, struct problem *p);

#endif
