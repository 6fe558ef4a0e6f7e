/* A conversation; see talk.h. The whole conversation is sent each time: the worker computes only
 * what its KV cache lacks (docs/conversations.md). */
#include "client/cli/chat/talk.h"

#include "base/clock.h"
#include "client/chat/no_event.h"
#include "client/cli/ask.h"
#include "client/cli/chat/messages.h"
#include "client/cli/commands.h"
#include "client/cli/deployment.h"
#include "client/cli/interrupt.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CONTEXT_WARN_PERCENT 80
#define MAX_DEATHS           2 /* of workers, of one question: the question may kill them */

/* ---- The session ---- */

static enum moed_code attach(struct talk *t, struct moed_error *error)
{
    struct moed_attach_options options = {
        .size = sizeof options, .deployment = t->deployment, .client = "moed chat"};
    if (t->session && moed_session_alive(t->session) && !moed_session_replaced(t->session))
        return MOED_OK;
    moed_detach(t->session);
    t->session = NULL;
    chat_model_free(t->model);
    t->model = NULL;
    return moed_attach(&options, &t->session, error);
}

static bool attach_first(struct talk *t, int *exit_code)
{
    double deadline_s = clock_s() + ASK_RETRY_S;
    struct moed_error error;
    if (!deployment_choose(&t->deployment, exit_code))
        return false;
    while (attach(t, &error)) {
        if (ask_again(&error, deadline_s))
            continue;
        *exit_code = ask_attach_failed(&error);
        return false;
    }
    return true;
}

static bool begin_messages(struct talk *t)
{
    struct error why;
    const char *file = t->settings->messages_file, *system = t->settings->system;
    t->messages = file ? NULL : json_array();
    if (file && messages_load(file, &t->messages, &why)) {
        cli_complain("chat: %s", why.text);
        return false;
    }
    if (t->messages && (!system || messages_set_system(t->messages, system)))
        return true;
    cli_complain("chat: the system message is not UTF-8");
    return false;
}

bool talk_init(struct talk *t, struct settings *s, int *exit_code)
{
    *t =
        (struct talk){.settings = s, .deployment = s->name, .terminal = isatty(STDOUT_FILENO) == 1};
    strbuf_init(&t->attached);
    *exit_code = CLI_FAILURE;
    return begin_messages(t) && attach_first(t, exit_code);
}

void talk_fini(struct talk *t)
{
    moed_detach(t->session);
    chat_model_free(t->model);
    json_decref(t->messages);
    strbuf_fini(&t->attached);
}

/* ---- One answer ---- */

/* One attempt at an answer. */
struct answer {
    struct talk *talk;
    struct chat_prompt prompt;
    struct reply reply;
    bool replies; /* reply is filled in */
    bool cancelled;
    double started_s, first_token_s;
    struct moed_result result;
};

static enum moed_code start(struct answer *a, struct moed_request **request,
                            struct moed_error *error)
{
    struct talk *t = a->talk;
    struct settings *s = t->settings;
    struct moed_generate_options options;
    struct moed_sampling sampling;
    struct moed_grammar grammar;
    s->chat.messages = t->messages;
    s->chat.thinking = s->view == THINKING_OFF ? CHAT_OFF : CHAT_UNSET;
    enum moed_code code = chat_prompt(t->session, &s->chat, NULL, 0, &t->model, &a->prompt, error);
    if (code)
        return code;
    if (a->prompt.plain && !t->plain_reported)
        cli_complain("the model has no chat template: turns are written as \"User: ...\"; give "
                     "one with --chat-template");
    t->plain_reported = true;
    settings_apply(s, &options, &sampling);
    chat_prompt_apply(&a->prompt, &options);
    options.special_text = chat_style_has_marks(&a->prompt.style);
    grammar = chat_prompt_bind(&a->prompt, options.grammar);
    options.grammar = &grammar;
    a->replies = true;
    if (!reply_init(&a->reply, &a->prompt, s->view, t->terminal)) {
        *error = (struct moed_error){.code = MOED_ERROR_MEMORY, .message = "no memory"};
        return MOED_ERROR_MEMORY;
    }
    a->started_s = clock_s();
    return moed_generate_start(t->session, &options, request, error);
}

static void take(struct answer *a, const struct moed_event *event)
{
    if (event->kind != MOED_EVENT_TOKENS)
        return;
    if (a->first_token_s == 0)
        a->first_token_s = clock_s();
    reply_take(&a->reply, event);
}

static void cancel_if_unwanted(struct answer *a, struct moed_request *request)
{
    bool unwanted = interrupts || a->reply.write_errno || a->reply.failed;
    if (!unwanted || a->cancelled)
        return;
    a->cancelled = true;
    moed_request_cancel(request);
}

/* Takes the events until the answer ends. A cancelled request that does not end in time is left:
 * the worker may be gone. */
static enum moed_code stream(struct answer *a, struct moed_request *request,
                             struct moed_error *error)
{
    const struct moed_event *event;
    for (;;) {
        struct pollfd fds[] = {{.fd = moed_request_fd(request), .events = POLLIN},
                               {.fd = interrupts_fd(), .events = POLLIN}};
        int n = poll(fds, a->cancelled ? 1 : 2, a->cancelled ? ASK_CANCEL_MS : -1);
        if (n == 0 || (n < 0 && errno != EINTR))
            return MOED_OK;
        cancel_if_unwanted(a, request);
        if (n < 0 || !fds[0].revents)
            continue;
        enum moed_code code = moed_request_next(request, 0, &event, error);
        if (code && no_event_yet(error))
            continue;
        if (code)
            return code;
        if (event->kind == MOED_EVENT_DONE) {
            a->result = *event->result;
            return MOED_OK;
        }
        take(a, event);
    }
}

static void answer_fini(struct answer *a)
{
    if (a->replies)
        reply_fini(&a->reply);
    chat_prompt_fini(&a->prompt);
    *a = (struct answer){.talk = a->talk};
}

static enum moed_code attempt(struct answer *a, bool *attached, struct moed_error *error)
{
    struct moed_request *request;
    enum moed_code code = attach(a->talk, error);
    *attached = !code;
    if (!code)
        code = start(a, &request, error);
    if (code)
        return code;
    code = stream(a, request, error);
    moed_request_free(request);
    reply_end(&a->reply);
    return code;
}

/* Tries until an answer comes, or an error that trying again does not mend. */
static enum moed_code try_to_answer(struct answer *a, struct moed_error *error)
{
    double deadline_s = clock_s() + ASK_RETRY_S;
    unsigned deaths = 0;
    bool attached;
    enum moed_code code;
    while ((code = attempt(a, &attached, error))) {
        if (attached && deaths++ < MAX_DEATHS)
            deadline_s = clock_s() + ASK_RETRY_S;
        if (interrupts || (a->replies && a->reply.printed) || !ask_again(error, deadline_s))
            return code;
        answer_fini(a);
    }
    return MOED_OK;
}

/* ---- What stands below an answer ---- */

static double per_second(double count, uint64_t ns)
{
    return ns && count > 0 ? count / ((double)ns * 1e-9) : 0;
}

static void print_figures(const struct answer *a)
{
    const struct moed_result *r = &a->result;
    fprintf(stderr,
            "%s(%" PRIu32 " tokens, %.2f tokens/s; prompt %" PRIu32 " tokens, %" PRIu32
            " cached; first token after %.3f s)\n",
            a->talk->terminal || !a->reply.printed || a->reply.ends_line ? "" : "\n",
            r->generated_tokens, per_second((double)r->generated_tokens - 1, r->decode_ns),
            r->prompt_tokens, r->cached_tokens,
            a->first_token_s > 0 ? a->first_token_s - a->started_s : 0);
}

/* Where the conversation takes most of the context, says so once. */
static void warn_of_context(const struct answer *a)
{
    struct talk *t = a->talk;
    uint32_t context = chat_model_context(t->model);
    uint64_t used = (uint64_t)a->result.prompt_tokens + a->result.generated_tokens;
    if (!isatty(STDIN_FILENO))
        return;
    bool full = used * 100 >= (uint64_t)context * CONTEXT_WARN_PERCENT;
    if (full && !t->full_reported)
        fprintf(stderr,
                "(%" PRIu64 " of the context's %" PRIu32 " tokens are used: /drop N forgets the "
                "oldest N turns, /undo the last one)\n",
                used, context);
    t->full_reported = full;
}

static void print_end(const struct answer *a)
{
    if (interrupts && a->talk->terminal)
        printf("(stopped)\n");
    else if (a->result.reason == MOED_REASON_CONTEXT)
        fprintf(stderr, "(the context is full: /drop N forgets the oldest N turns, /clear all)\n");
    else if (a->result.reason == MOED_REASON_LENGTH && a->talk->terminal)
        printf("(%" PRIu64 " tokens, as /set n says)\n", a->talk->settings->n);
    fflush(stdout);
    if (a->talk->settings->figures && !interrupts)
        print_figures(a);
    if (!interrupts && a->result.reason != MOED_REASON_CONTEXT)
        warn_of_context(a);
}

static enum talk_end fail(struct talk *t, const struct moed_error *error)
{
    t->exit_code = ask_failed(error);
    bool long_talk = messages_questions(t->messages) > 1 || t->attached.len;
    bool too_long = error->code == MOED_ERROR_CONTEXT || error->code == MOED_ERROR_LIMIT;
    if (too_long && long_talk && isatty(STDIN_FILENO))
        fprintf(stderr, "moed: /drop N forgets the oldest N turns, /undo the last one; /clear all "
                        "turns and what /read has attached\n");
    return TALK_FAILED;
}

/* The answer becomes a message. */
static enum talk_end keep(struct answer *a)
{
    const struct reply *r = &a->reply;
    if (r->write_errno) {
        a->talk->exit_code = ask_write_failed(r->write_errno);
        return TALK_CLOSED;
    }
    print_end(a);
    if (interrupts && !r->content.len)
        return TALK_NOTHING;
    if (!r->failed && messages_add(a->talk->messages, "assistant", r->content.data, r->content.len))
        return TALK_ANSWERED;
    cli_complain("chat: no memory for the answer, or it is not UTF-8");
    a->talk->exit_code = CLI_FAILURE;
    return TALK_FAILED;
}

enum talk_end talk_answer(struct talk *t)
{
    struct answer a = {.talk = t};
    struct moed_error error;
    enum talk_end end;
    if (!try_to_answer(&a, &error))
        end = keep(&a);
    else
        end = interrupts ? TALK_NOTHING : fail(t, &error);
    answer_fini(&a);
    return end;
}
