/* moed run --answers N: several answers to one prompt, printed in order once each is whole.
 *
 * The answers are read as they come, whichever it is: the requests of a session share its window,
 * so one that is not read would hold up the others. */
#include "client/chat/no_event.h"
#include "client/cli/ask.h"
#include "client/cli/commands.h"
#include "client/cli/interrupt.h"
#include "client/cli/run_command.h"

#include "base/clock.h"
#include "base/utf8.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct answers {
    struct run runs[RUN_MAX_ANSWERS]; /* what each has collected */
    struct moed_request *requests[RUN_MAX_ANSWERS];
    bool done[RUN_MAX_ANSWERS];
    unsigned n, n_done, n_printed;
    bool cancelled;
};

static void open_runs(struct answers *a, const struct run *run)
{
    a->n = run->n_answers;
    for (unsigned i = 0; i < a->n; i++) {
        a->runs[i] = *run;
        run_buffers_init(&a->runs[i]);
        a->runs[i].started_s = clock_s();
    }
}

static void close_runs(struct answers *a)
{
    for (unsigned i = 0; i < a->n; i++) {
        moed_request_free(a->requests[i]);
        run_buffers_fini(&a->runs[i]);
    }
}

static void cancel_if_interrupted(struct answers *a)
{
    if (!interrupts || a->cancelled)
        return;
    a->cancelled = true;
    for (unsigned i = 0; i < a->n; i++)
        moed_request_cancel(a->requests[i]);
}

/* Takes the events of an answer that are there. */
static enum moed_code take_events(struct answers *a, unsigned i, struct moed_error *error)
{
    struct run *run = &a->runs[i];
    const struct moed_event *event;
    enum moed_code code;
    while (!a->done[i] && !(code = moed_request_next(a->requests[i], 0, &event, error))) {
        if (event->kind == MOED_EVENT_DONE) {
            run->result = *event->result;
            a->done[i] = true;
            a->n_done++;
        } else if (event->kind == MOED_EVENT_PROGRESS) {
            run_take_progress(run, event->progress);
        } else {
            run->first_token_s = run->first_token_s > 0 ? run->first_token_s : clock_s();
            run_collect(run, event);
        }
    }
    return a->done[i] || no_event_yet(error) ? MOED_OK : code;
}

static bool print_text(struct answers *a, unsigned i)
{
    struct strbuf *text = &a->runs[i].text, out;
    strbuf_init(&out);
    strbuf_printf(&out, "--- answer %u of %u\n", i + 1, a->n);
    size_t begin = out.len;
    strbuf_append(&out, text->data, text->len);
    if (a->runs[i].filters && !out.failed)
        utf8_hide_controls(out.data + begin, out.len - begin, "\n\t");
    if (!text->len || text->data[text->len - 1] != '\n')
        strbuf_append(&out, "\n", 1);
    bool failed = out.failed || text->failed;
    if (failed)
        cli_complain("no memory for the answer");
    bool printed = !failed && ask_print(out.data, out.len);
    strbuf_fini(&out);
    return printed;
}

/* Prints the answers that are whole, in order. */
static bool print_whole(struct answers *a)
{
    while (a->n_printed < a->n && a->done[a->n_printed]) {
        unsigned i = a->n_printed++;
        if (!(a->runs[i].json ? run_print_json(&a->runs[i]) : print_text(a, i)))
            return false;
        if (a->runs[i].stats)
            run_print_stats(&a->runs[i]);
    }
    return true;
}

static bool watch(struct answers *a, struct pollfd fds[])
{
    for (unsigned i = 0; i < a->n; i++) {
        fds[i] = (struct pollfd){.fd = moed_request_fd(a->requests[i]), .events = POLLIN};
        if (fds[i].fd < 0) {
            cli_complain("cannot wait: %s", strerror(errno));
            return false;
        }
    }
    fds[a->n] = (struct pollfd){.fd = interrupts_fd(), .events = POLLIN};
    return true;
}

static int stream_all(struct answers *a)
{
    struct pollfd fds[RUN_MAX_ANSWERS + 1];
    struct moed_error error;
    if (!watch(a, fds))
        return CLI_FAILURE;
    while (a->n_done < a->n) {
        int n = poll(fds, a->cancelled ? a->n : a->n + 1, a->cancelled ? ASK_CANCEL_MS : -1);
        if (n == 0)
            break;
        cancel_if_interrupted(a);
        for (unsigned i = 0; i < a->n; i++) {
            if (!a->done[i] && take_events(a, i, &error))
                return ask_failed(&error);
            fds[i].fd = a->done[i] ? -1 : fds[i].fd;
        }
        if (!print_whole(a))
            return CLI_FAILURE;
    }
    return interrupts ? EXIT_INTERRUPTED : CLI_OK;
}

int run_answers(struct run *run)
{
    struct moed_session *session;
    struct moed_error error;
    int exit_code;
    if (!ask_attach(run->deployment, &session, &exit_code))
        return exit_code;
    struct answers *a = calloc(1, sizeof *a);
    if (!a) {
        cli_complain("no memory for the answers");
        moed_detach(session);
        return CLI_FAILURE;
    }
    open_runs(a, run);
    if (run_start(run, session, a->requests, &error)) {
        exit_code = ask_failed(&error);
    } else {
        interrupts_hold(true);
        exit_code = stream_all(a);
        interrupts_hold(false);
    }
    close_runs(a);
    moed_detach(session);
    free(a);
    return exit_code;
}
