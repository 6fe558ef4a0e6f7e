/* What the files of `moed run` share: run.c (the command, one answer), run_answers.c (several
 * answers), run_start.c (the request), run_arguments.c (the command line), run_output.c (JSON,
 * speeds, progress). */
#ifndef MOED_CLI_RUN_COMMAND_H
#define MOED_CLI_RUN_COMMAND_H

#include "base/strbuf.h"
#include "client/cli/chat.h"
#include "client/cli/grammar_options.h"
#include "client/cli/sampling_options.h"

#define RUN_MAX_ANSWERS 64

struct run {
    const char *deployment;
    struct moed_generate_options options;
    struct moed_sampling sampling; /* of the options */
    bool filters;                  /* standard output is a terminal: hide control characters */
    bool chat;                     /* the prompt is a turn of a conversation */
    struct chat_options chat_options;
    bool plain_reported; /* that the model has no chat template */
    bool json, stats;
    unsigned n_answers; /* at most RUN_MAX_ANSWERS */

    struct strbuf text;               /* collected for json */
    struct strbuf tokens;             /* "1, 2" */
    struct strbuf logprobs, progress; /* JSON values, separated by commas */
    bool printed;                     /* part of the answer was printed: no second attempt */
    bool ends_line;                   /* the last byte printed was a newline */
    bool closed;                      /* standard output's reader has gone */
    int write_errno;                  /* another error of standard output */
    bool cancelled;                   /* by us */
    double started_s, first_token_s;
    struct moed_result result;
};

/* ---- run_arguments.c ---- */

/* Every value of an option that may be given several times. */
struct repeated {
    const char **values;
    size_t count;
};

struct run_arguments {
    const char *name, *prompt;
    uint64_t n, answers, min_tokens, logprobs, deadline_ms;
    struct sampling_options sampling;
    struct chat_options chat_options;
    struct grammar_options grammar;
    bool chat, special, show_special, tokens, ignore_end, json, stats, raw, progress, batch;
    struct repeated stops, stop_tokens, biases, breakers, choices;
    struct moed_bytes *stop_list, *breaker_list; /* for libmoed */
    struct moed_bias *bias_list;
    uint32_t *stop_token_list;
};

/* False: exit with *exit_code; it has complained where that is an error. In any case the caller
 * calls run_arguments_fini, after the last use of what run_arguments_apply has set. */
bool run_arguments_take(struct run_arguments *a, int argc, char **argv, int *exit_code);
void run_arguments_apply(const struct run_arguments *a, struct run *run);
void run_arguments_fini(struct run_arguments *a);

/* ---- run_start.c ---- */

/* Starts run->n_answers requests. The prompt of a chat is made here: it needs a session. */
enum moed_code run_start(struct run *run, struct moed_session *session,
                         struct moed_request **requests, struct moed_error *error);
/* What is collected of an answer. */
void run_buffers_init(struct run *run);
void run_buffers_fini(struct run *run);
/* For another attempt; the time begins anew. */
void run_buffers_clear(struct run *run);

/* ---- run_answers.c ---- */

/* Several answers; returns the exit code. */
int run_answers(struct run *run);

/* ---- run_output.c ---- */

/* Adds an event's tokens, text and log-probabilities to what run_print_json prints. */
void run_collect(struct run *run, const struct moed_event *event);
/* Collects it for JSON, or prints it to standard error. */
void run_take_progress(struct run *run, const struct moed_progress *progress);
/* False: it has complained. */
bool run_print_json(const struct run *run);
void run_print_stats(const struct run *run);

#endif
