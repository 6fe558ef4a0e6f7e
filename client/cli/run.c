/* moed run: stream the answer to a prompt.
 *
 * Standard output gets the answer's bytes as they come and nothing else; what a person should know
 * goes to standard error. The answer is awaited with poll(2) on three things: the request, Ctrl-C
 * (interrupt.h), and standard output, so that a reader that goes away ends the request at once and
 * not with the next token. */
#include "client/cli/ask.h"
#include "client/cli/chat.h"
#include "client/cli/commands.h"
#include "client/cli/interrupt.h"

#include "base/clock.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct run {
    const char *deployment;
    struct moed_generate_options options;
    bool chat; /* the prompt is a turn of a conversation */
    bool json, stats;

    struct strbuf text;   /* collected for json */
    struct strbuf tokens; /* "1, 2" */
    bool printed;         /* something of the answer has left: no second attempt */
    bool ends_line;       /* the last byte printed was a newline */
    bool closed;          /* standard output's reader has gone */
    int write_errno;      /* why standard output failed, other than that */
    bool cancelled;       /* we asked for it */
    double started_s, first_token_s;
    struct moed_result result;
};

/* ---- The answer ---- */

static void print_text(struct run *run, const struct moed_event *event)
{
    if (!event->text_bytes || run->closed || run->write_errno)
        return;
    run->printed = true;
    run->ends_line = event->text[event->text_bytes - 1] == '\n';
    if (ask_write(STDOUT_FILENO, event->text, event->text_bytes, &interrupts))
        return;
    if (errno == EPIPE)
        run->closed = true;
    else if (errno != EINTR)
        run->write_errno = errno;
}

static void take_tokens(struct run *run, const struct moed_event *event)
{
    if (run->first_token_s == 0)
        run->first_token_s = clock_s();
    if (!run->json) {
        print_text(run, event);
        return;
    }
    strbuf_append(&run->text, event->text, event->text_bytes);
    for (size_t i = 0; i < event->token_count; i++)
        strbuf_printf(&run->tokens, "%s%" PRIu32, run->tokens.len ? ", " : "", event->tokens[i]);
}

static void cancel_if_unwanted(struct run *run, struct moed_request *request)
{
    bool unwanted = interrupts || run->closed || run->write_errno;
    if (!unwanted || run->cancelled)
        return;
    run->cancelled = true;
    moed_request_cancel(request);
}

static enum moed_code stream(struct run *run, struct moed_request *request,
                             struct moed_error *error)
{
    struct pollfd fds[] = {
        {.fd = moed_request_fd(request), .events = POLLIN},
        {.fd = interrupts_fd(), .events = POLLIN},
        {.fd = STDOUT_FILENO}, /* POLLERR: the reader has closed the pipe */
    };
    enum { ALL = 3, REQUEST_ONLY = 1 };
    if (fds[0].fd < 0) {
        *error = (struct moed_error){.code = MOED_ERROR_IO};
        snprintf(error->message, sizeof error->message, "cannot wait: %s", strerror(errno));
        return error->code;
    }
    for (;;) {
        fds[0].revents = 0; /* poll leaves it alone when a signal ends it */
        poll(fds, run->cancelled ? REQUEST_ONLY : ALL, -1);
        if (!run->cancelled && (fds[2].revents & (POLLERR | POLLHUP)))
            run->closed = true;
        cancel_if_unwanted(run, request);
        if (!fds[0].revents)
            continue;
        struct moed_event event;
        enum moed_code code = moed_request_next(request, 0, &event, error);
        if (code)
            return code;
        if (event.kind == MOED_EVENT_DONE) {
            run->result = event.result;
            return MOED_OK;
        }
        take_tokens(run, &event);
    }
}

static void forget_attempt(struct run *run)
{
    strbuf_clear(&run->text);
    strbuf_clear(&run->tokens);
    run->first_token_s = 0;
    run->started_s = clock_s();
}

/* A chat's prompt is made here, where there is a session to ask for its tokens. */
static enum moed_code start(const struct run *run, struct moed_session *session,
                            struct moed_request **request, struct moed_error *error)
{
    struct moed_generate_options options = run->options;
    if (!run->chat || !options.prompt_bytes) /* the library refuses an empty one */
        return moed_generate_start(session, &options, request, error);
    uint32_t *tokens;
    enum moed_code code = chat_prompt(session, options.prompt, options.prompt_bytes, &tokens,
                                      &options.token_count, error);
    if (code)
        return code;
    options.prompt_bytes = 0;
    options.tokens = tokens;
    code = moed_generate_start(session, &options, request, error);
    moed_free(tokens);
    return code;
}

/* Attach, ask, detach. *attached tells which of them failed. */
static enum moed_code attempt(struct run *run, bool *attached, struct moed_error *error)
{
    struct moed_attach_options options = {.deployment = run->deployment, .client = "moed run"};
    struct moed_session *session;
    *attached = false;
    enum moed_code code = moed_attach(&options, &session, error);
    if (code)
        return code;
    *attached = true;
    forget_attempt(run);
    struct moed_request *request;
    code = start(run, session, &request, error);
    if (!code) {
        interrupts_hold(true);
        code = stream(run, request, error);
        interrupts_hold(false);
        moed_request_free(request);
    }
    moed_detach(session);
    return code;
}

/* ---- What is told at the end ---- */

static double per_second(double count, uint64_t ns)
{
    return ns && count > 0 ? count / ((double)ns * 1e-9) : 0;
}

/* The first token comes out of the prefill; decoding makes the others. */
static double decode_rate(const struct moed_result *r)
{
    return per_second((double)r->generated_tokens - 1, r->decode_ns);
}

static double first_token_s(const struct run *run)
{
    return run->first_token_s > 0 ? run->first_token_s - run->started_s : 0;
}

static bool print_json(const struct run *run)
{
    const struct moed_result *r = &run->result;
    struct strbuf out;
    strbuf_init(&out);
    strbuf_printf(&out, "{\"text\": ");
    strbuf_json_string(&out, run->text.data, run->text.len);
    strbuf_printf(&out, ", \"tokens\": [%s], \"finish_reason\": \"%s\"",
                  run->tokens.len ? run->tokens.data : "", moed_reason_name(r->reason));
    strbuf_printf(&out, ", \"prompt_tokens\": %" PRIu32 ", \"generated_tokens\": %" PRIu32,
                  r->prompt_tokens, r->generated_tokens);
    strbuf_printf(&out, ", \"queue_s\": %.6f, \"prefill_s\": %.6f, \"decode_s\": %.6f",
                  (double)r->queue_ns * 1e-9, (double)r->prefill_ns * 1e-9,
                  (double)r->decode_ns * 1e-9);
    strbuf_printf(&out,
                  ", \"time_to_first_token_s\": %.6f, \"prompt_tokens_per_s\": %.3f, "
                  "\"tokens_per_s\": %.3f}\n",
                  first_token_s(run), per_second(r->prompt_tokens, r->prefill_ns), decode_rate(r));
    bool failed = out.failed || run->text.failed || run->tokens.failed;
    if (failed)
        ask_complain("no memory for the answer");
    bool written = !failed && ask_print(out.data, out.len);
    strbuf_fini(&out);
    return written;
}

static void print_stats(const struct run *run)
{
    const struct moed_result *r = &run->result;
    fprintf(stderr,
            "%" PRIu32 " tokens, %.2f tokens/s; prompt %" PRIu32
            " tokens, %.2f tokens/s; first token after %.3f s\n",
            r->generated_tokens, decode_rate(r), r->prompt_tokens,
            per_second(r->prompt_tokens, r->prefill_ns), first_token_s(run));
}

/* End as a filter does whose reader has gone: by SIGPIPE, without a word. */
static int end_by_sigpipe(void)
{
    signal(SIGPIPE, SIG_DFL);
    raise(SIGPIPE);
    return CLI_FAILURE;
}

static int report(struct run *run)
{
    if (!run->json && run->printed && !run->ends_line && isatty(STDOUT_FILENO))
        run->closed |= !ask_write(STDOUT_FILENO, "\n", 1, NULL);
    if (run->json && !run->closed && !print_json(run))
        return CLI_FAILURE;
    if (run->stats)
        print_stats(run);
    if (interrupts)
        return EXIT_INTERRUPTED;
    if (run->closed)
        return end_by_sigpipe();
    if (run->write_errno) {
        ask_complain("cannot write to standard output: %s", strerror(run->write_errno));
        return CLI_FAILURE;
    }
    return CLI_OK;
}

/* A worker that dies on this very prompt would die for ever. */
#define MAX_DEATHS 2

static int answer(struct run *run)
{
    double deadline_s = clock_s() + ASK_RETRY_S;
    unsigned deaths = 0;
    struct moed_error error;
    bool attached;
    while (attempt(run, &attached, &error)) {
        if (attached && deaths++ < MAX_DEATHS) /* however long it had computed */
            deadline_s = clock_s() + ASK_RETRY_S;
        if (interrupts)
            return EXIT_INTERRUPTED;
        if (run->closed)
            return end_by_sigpipe();
        if (!run->printed && ask_again(&error, deadline_s))
            continue;
        if (run->printed && !run->ends_line && isatty(STDOUT_FILENO))
            fputc('\n', stderr);
        return attached ? ask_failed(&error) : ask_attach_failed(&error);
    }
    return report(run);
}

/* ---- Arguments ---- */

/* Take every --stop TEXT and --stop=TEXT out of argv (the option table holds one value a name). */
static bool take_stops(int *argc, char **argv, struct moed_bytes *stops, size_t *count)
{
    int kept = 1, i = 1;
    for (; i < *argc && strcmp(argv[i], "--") != 0; i++) {
        const char *text = NULL;
        if (strncmp(argv[i], "--stop=", 7) == 0)
            text = argv[i] + 7;
        else if (strcmp(argv[i], "--stop") == 0 && i + 1 < *argc)
            text = argv[++i];
        if (!text) {
            argv[kept++] = argv[i];
            continue;
        }
        if (!*text) {
            ask_complain("run: --stop needs a text");
            return false;
        }
        stops[(*count)++] = (struct moed_bytes){.data = text, .len = strlen(text)};
    }
    for (; i < *argc; i++)
        argv[kept++] = argv[i];
    *argc = kept;
    argv[kept] = NULL;
    return true;
}

struct run_arguments {
    const char *name, *stop;
    uint64_t n, top_k, seed;
    double temperature, top_p, min_p, repeat_penalty;
    bool chat, special, tokens, ignore_end, json, stats;
};

static bool parse(struct run_arguments *a, int argc, char **argv, int *exit_code)
{
    const struct option_spec table[] = {
        {"n", OPTION_UINT, &a->n, 0, UINT32_MAX, "N",
         "at most N tokens; 0: until the context is full"},
        {"name", OPTION_STRING, &a->name, 0, 0, "NAME", "deployment"},
        {"temp", OPTION_FLOAT, &a->temperature, 0, 100, "T",
         "temperature; 0: greedy, the same answer every time"},
        {"top-k", OPTION_UINT, &a->top_k, 0, UINT32_MAX, "K",
         "sample from the K likeliest; 0: off"},
        {"top-p", OPTION_FLOAT, &a->top_p, 0, 1, "P",
         "sample from the likeliest of total probability P; 1: off"},
        {"min-p", OPTION_FLOAT, &a->min_p, 0, 1, "P",
         "drop what is less likely than P times the likeliest; 0: off"},
        {"repeat-penalty", OPTION_FLOAT, &a->repeat_penalty, 0, 100, "R",
         "make recent tokens less likely; 1: off"},
        {"seed", OPTION_UINT, &a->seed, 0, 0, "S", "of the random numbers"},
        {"stop", OPTION_STRING, &a->stop, 0, 0, "TEXT", "end before TEXT; may be repeated"},
        {"chat", OPTION_BOOL, &a->chat, 0, 0, NULL,
         "PROMPT is a turn of a conversation, after the model's chat template"},
        {"special", OPTION_BOOL, &a->special, 0, 0, NULL,
         "special tokens' texts in the prompt become those tokens"},
        {"tokens", OPTION_BOOL, &a->tokens, 0, 0, NULL, "PROMPT is a list of token ids"},
        {"ignore-end", OPTION_BOOL, &a->ignore_end, 0, 0, NULL,
         "go on past end-of-generation tokens"},
        {"json", OPTION_BOOL, &a->json, 0, 0, NULL, "print one JSON object at the end instead"},
        {"stats", OPTION_BOOL, &a->stats, 0, 0, NULL, "print speeds to standard error at the end"},
        {0},
    };
    if (!ask_arguments(table, "run", "[OPTIONS] PROMPT",
                       "Streams the answer to PROMPT (- reads standard input) to standard output.\n"
                       "Ctrl-C cancels the answer; the deployment goes on.",
                       argc, argv, 1, exit_code))
        return false;
    if (!a->stop && !(a->chat && (a->special || a->tokens)))
        return true;
    if (a->stop) /* one that take_stops left: without a value */
        ask_complain("run: --stop needs a text");
    else
        ask_complain("run: --chat takes PROMPT as plain text: leave out --%s",
                     a->special ? "special" : "tokens");
    *exit_code = CLI_USAGE;
    return false;
}

static void set_options(struct run *run, const struct run_arguments *a)
{
    run->deployment = a->name;
    run->chat = a->chat;
    run->json = a->json;
    run->stats = a->stats;
    run->options.parse_special = a->special;
    run->options.ignore_end = a->ignore_end;
    run->options.max_tokens = (uint32_t)a->n;
    run->options.sampling = (struct moed_sampling){
        .temperature = (float)a->temperature,
        .top_k = (uint32_t)a->top_k,
        .top_p = (float)a->top_p,
        .min_p = (float)a->min_p,
        .repetition_penalty = (float)a->repeat_penalty,
        .seed = a->seed,
    };
}

/* The prompt as text, or as ids; *text and *ids are the caller's to free. */
static bool take_prompt(struct run *run, const char *argument, bool tokens, struct strbuf *text,
                        uint32_t **ids)
{
    if (!ask_text(argument, text))
        return false;
    if (tokens) {
        if (!ask_ids(text->data, text->len, ids, &run->options.token_count))
            return false;
        run->options.tokens = *ids;
        return true;
    }
    run->options.prompt = text->data;
    run->options.prompt_bytes = text->len;
    return true;
}

int run_main(int argc, char **argv)
{
    struct run run = {0};
    struct run_arguments arguments = {.top_p = 1, .repeat_penalty = 1};
    struct moed_bytes *stops = calloc((size_t)argc, sizeof *stops);
    struct strbuf prompt;
    uint32_t *ids = NULL;
    strbuf_init(&prompt);
    strbuf_init(&run.text);
    strbuf_init(&run.tokens);
    int exit_code = CLI_USAGE;
    if (stops && take_stops(&argc, argv, stops, &run.options.stop_count) &&
        parse(&arguments, argc, argv, &exit_code)) {
        set_options(&run, &arguments);
        run.options.stop = stops;
        exit_code = CLI_FAILURE;
        if (take_prompt(&run, argv[1], arguments.tokens, &prompt, &ids) && interrupts_watch())
            exit_code = answer(&run);
    }
    strbuf_fini(&prompt);
    strbuf_fini(&run.text);
    strbuf_fini(&run.tokens);
    free(ids);
    free(stops);
    return exit_code;
}
