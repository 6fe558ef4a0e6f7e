/* moed run: streams the answer to a prompt.
 *
 * Standard output gets only the answer's bytes, as they come; messages go to standard error.
 * poll(2) waits for the request, for Ctrl-C (interrupt.h) and for standard output, so that a reader
 * that goes away ends the request at once and not with the next token. */
#include "client/cli/ask.h"
#include "client/cli/commands.h"
#include "client/cli/deployment.h"
#include "client/cli/interrupt.h"
#include "client/cli/run_command.h"

#include "base/clock.h"
#include "base/utf8.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- The answer ---- */

static void print_text(struct run *run, const struct moed_event *event)
{
    if (!event->text_bytes || run->closed || run->write_errno)
        return;
    run->printed = true;
    run->ends_line = event->text[event->text_bytes - 1] == '\n';
    const char *text = event->text;
    if (run->filters) { /* an answer must not move the cursor, set the title or answer a query */
        strbuf_clear(&run->text);
        strbuf_append(&run->text, event->text, event->text_bytes);
        if (run->text.failed) {
            run->write_errno = ENOMEM;
            return;
        }
        utf8_hide_controls(run->text.data, run->text.len, "\n\t");
        text = run->text.data;
    }
    if (ask_write(STDOUT_FILENO, text, event->text_bytes, &interrupts))
        return;
    if (errno == EPIPE)
        run->closed = true;
    else if (errno != EINTR)
        run->write_errno = errno;
}

static void take_event(struct run *run, const struct moed_event *event)
{
    if (event->kind == MOED_EVENT_PROGRESS) {
        run_take_progress(run, event->progress);
        return;
    }
    if (run->first_token_s == 0)
        run->first_token_s = clock_s();
    if (run->json)
        run_collect(run, event);
    else
        print_text(run, event);
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
        int n = poll(fds, run->cancelled ? REQUEST_ONLY : ALL, run->cancelled ? ASK_CANCEL_MS : -1);
        if (n == 0) {
            run->result.reason = MOED_REASON_CANCELLED;
            return MOED_OK;
        }
        if (!run->cancelled && (fds[2].revents & (POLLERR | POLLHUP)))
            run->closed = true;
        cancel_if_unwanted(run, request);
        if (!fds[0].revents)
            continue;
        const struct moed_event *event;
        enum moed_code code = moed_request_next(request, 0, &event, error);
        if (code)
            return code;
        if (event->kind == MOED_EVENT_DONE) {
            run->result = *event->result;
            return MOED_OK;
        }
        take_event(run, event);
    }
}

/* Attaches, sends the request, detaches. *attached: false where attaching failed. */
static enum moed_code attempt(struct run *run, bool *attached, struct moed_error *error)
{
    struct moed_attach_options options = {
        .size = sizeof options, .deployment = run->deployment, .client = "moed run"};
    struct moed_session *session;
    *attached = false;
    enum moed_code code = moed_attach(&options, &session, error);
    if (code)
        return code;
    *attached = true;
    run_buffers_clear(run);
    struct moed_request *request;
    code = run_start(run, session, &request, error);
    if (!code) {
        interrupts_hold(true);
        code = stream(run, request, error);
        interrupts_hold(false);
        moed_request_free(request);
    }
    moed_detach(session);
    return code;
}

/* ---- The end ---- */

static int report(struct run *run)
{
    if (!run->json && run->printed && !run->ends_line && isatty(STDOUT_FILENO))
        run->closed |= !ask_write(STDOUT_FILENO, "\n", 1, NULL);
    if (run->json && !run->closed && !run_print_json(run))
        return CLI_FAILURE;
    if (run->stats && !run->json && run->printed && !run->ends_line && !isatty(STDOUT_FILENO))
        fputc('\n', stderr); /* both may go to one place */
    if (run->stats)
        run_print_stats(run);
    if (interrupts)
        return EXIT_INTERRUPTED;
    if (run->closed)
        return ask_write_failed(EPIPE);
    return run->write_errno ? ask_write_failed(run->write_errno) : CLI_OK;
}

/* The prompt itself may kill workers, so attempts after a death are few. */
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
            return ask_write_failed(EPIPE);
        if (!run->printed && ask_again(&error, deadline_s))
            continue;
        if (run->printed && !run->ends_line && isatty(STDOUT_FILENO))
            fputc('\n', stderr);
        return attached ? ask_failed(&error) : ask_attach_failed(&error);
    }
    return report(run);
}

/* ---- The verb ---- */

/* Reads the prompt as text or ids. The caller frees *text and *ids. */
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
    struct run_arguments arguments;
    struct strbuf prompt;
    uint32_t *ids = NULL;
    int exit_code = CLI_USAGE;
    strbuf_init(&prompt);
    run_buffers_init(&run);
    if (run_arguments_take(&arguments, argc, argv, &exit_code) &&
        deployment_choose(&arguments.name, &exit_code)) {
        run_arguments_apply(&arguments, &run);
        exit_code = CLI_FAILURE;
        if (take_prompt(&run, arguments.prompt, arguments.tokens, &prompt, &ids) &&
            interrupts_watch())
            exit_code = run.n_answers > 1 ? run_answers(&run) : answer(&run);
    }
    run_arguments_fini(&arguments);
    strbuf_fini(&prompt);
    run_buffers_fini(&run);
    free(ids);
    return exit_code;
}
