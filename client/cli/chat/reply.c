/* An answer on its way to the terminal; see reply.h. */
#include "client/cli/chat/reply.h"

#include "base/clock.h"
#include "base/utf8.h"
#include "client/cli/ask.h"
#include "client/cli/interrupt.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DRAW_INTERVAL_S 0.2

/* ---- Printing ---- */

static void write_text(struct reply *r, int fd, const char *text, size_t len)
{
    if (!len || r->write_errno)
        return;
    r->printed = true;
    r->ends_line = text[len - 1] == '\n';
    if (!ask_write(fd, text, len, &interrupts) && errno != EINTR)
        r->write_errno = errno;
}

/* What the model wrote. */
static void print_foreign(struct reply *r, int fd, const char *text, size_t len)
{
    if (!isatty(fd)) {
        write_text(r, fd, text, len);
        return;
    }
    strbuf_clear(&r->shown);
    strbuf_append(&r->shown, text, len);
    if (r->shown.failed) {
        r->failed = true;
        return;
    }
    utf8_hide_controls(r->shown.data, r->shown.len, "\n\t");
    write_text(r, fd, r->shown.data, r->shown.len);
}

/* What we write ourselves. */
static void print_own(struct reply *r, const char *text)
{
    write_text(r, STDOUT_FILENO, text, strlen(text));
}

/* ---- Reasoning ---- */

static unsigned long long thought_tokens(const struct reply *r)
{
    return (unsigned long long)tool_parser_reasoning_tokens(r->parser);
}

static void draw_fold(struct reply *r, double now_s)
{
    char line[80];
    if (!r->moves || now_s - r->drawn_s < DRAW_INTERVAL_S)
        return;
    r->drawn_s = now_s;
    snprintf(line, sizeof line, "\r\033[Kthinking: %llu tokens, %.0f s", thought_tokens(r),
             now_s - r->thinks_since_s);
    print_own(r, line);
}

static void begin_thinking(struct reply *r)
{
    r->thinks = r->has_thought = true;
    r->thinks_since_s = clock_s();
    if (!r->terminal || r->view == THINKING_OFF)
        return;
    print_own(r, r->view == THINKING_SHOW ? "(thinking)\n" : "thinking ...");
}

static void end_thinking(struct reply *r)
{
    char line[128];
    r->thinks = false;
    if (!r->terminal || r->view == THINKING_OFF)
        return;
    if (r->view == THINKING_SHOW) {
        print_own(r, r->ends_line ? "(end of thinking)\n" : "\n(end of thinking)\n");
        return;
    }
    snprintf(line, sizeof line, "%s(thought for %.1f s, %llu tokens)\n",
             r->moves ? "\r\033[K" : " ", clock_s() - r->thinks_since_s, thought_tokens(r));
    print_own(r, line);
}

static void take_reasoning(struct reply *r, const char *text, size_t len)
{
    if (!r->thinks)
        begin_thinking(r);
    if (r->view == THINKING_SHOW)
        print_foreign(r, r->terminal ? STDOUT_FILENO : STDERR_FILENO, text, len);
    else if (r->view == THINKING_FOLD && r->terminal)
        draw_fold(r, clock_s());
}

/* ---- Content ---- */

static void take_content(struct reply *r, const char *text, size_t len)
{
    if (r->thinks)
        end_thinking(r);
    strbuf_append(&r->content, text, len);
    r->failed |= r->content.failed;
    print_foreign(r, STDOUT_FILENO, text, len);
}

static void on_event(void *context, const struct tool_event *event)
{
    if (event->kind == TOOL_CONTENT)
        take_content(context, event->text, event->len);
    else if (event->kind == TOOL_REASONING)
        take_reasoning(context, event->text, event->len);
}

/* ---- From outside ---- */

bool reply_init(struct reply *r, const struct chat_prompt *prompt, enum thinking_view view,
                bool terminal)
{
    const char *term = getenv("TERM");
    *r = (struct reply){
        .view = view, .terminal = terminal, .moves = terminal && term && strcmp(term, "dumb") != 0};
    strbuf_init(&r->content);
    strbuf_init(&r->shown);
    if (!chat_style_has_marks(&prompt->style))
        return true;
    struct tool_parser_options options = {.format = prompt->style.format,
                                          .reasoning = prompt->style.reasoning,
                                          .reasoning_open = prompt->reasoning_end != NULL,
                                          .on_event = on_event,
                                          .context = r};
    return tool_parser_new(&options, &r->parser, NULL) == ERROR_OK;
}

void reply_fini(struct reply *r)
{
    tool_parser_free(r->parser);
    strbuf_fini(&r->content);
    strbuf_fini(&r->shown);
}

void reply_take(struct reply *r, const struct moed_event *event)
{
    size_t n, used;
    if (!r->parser && event->text_bytes)
        take_content(r, event->text, event->text_bytes);
    else if (r->parser && tool_parser_feed_tokens(r->parser, event->token_bytes, event->token_count,
                                                  event->text, event->text_bytes, &n, &used))
        r->failed = true;
}

void reply_end(struct reply *r)
{
    if (r->parser && tool_parser_finish(r->parser))
        r->failed = true;
    if (r->thinks)
        end_thinking(r);
    if (r->terminal && r->printed && !r->ends_line)
        print_own(r, "\n");
}
