/* Lines that a person types; see line_reader.h. */
#include "client/cli/chat/line_reader.h"

#include "client/cli/chat/line_edit.h"
#include "client/cli/interrupt.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct line_reader {
    struct line_edit *edit; /* NULL: the terminal edits the lines */
    struct strbuf rest;     /* read behind the last line */
};

static bool terminal_moves(void)
{
    const char *term = getenv("TERM");
    return isatty(STDIN_FILENO) && isatty(STDOUT_FILENO) && term && *term &&
           strcmp(term, "dumb") != 0;
}

struct line_reader *line_reader_new(const char *history_file)
{
    struct line_reader *r = calloc(1, sizeof *r);
    if (!r)
        return NULL;
    strbuf_init(&r->rest);
    if (terminal_moves())
        r->edit = line_edit_new(history_file);
    return r;
}

void line_reader_free(struct line_reader *r)
{
    if (!r)
        return;
    line_edit_free(r->edit);
    strbuf_fini(&r->rest);
    free(r);
}

/* Takes the first line of r->rest. False: it has no whole one. */
static bool take_line(struct line_reader *r, struct strbuf *out)
{
    char *end = r->rest.len ? memchr(r->rest.data, '\n', r->rest.len) : NULL;
    if (!end)
        return false;
    size_t len = (size_t)(end - r->rest.data);
    strbuf_clear(out);
    strbuf_append(out, r->rest.data, len);
    r->rest.len -= len + 1;
    memmove(r->rest.data, end + 1, r->rest.len + 1);
    return true;
}

/* Waits for bytes of standard input. */
static enum line_end read_more(struct line_reader *r)
{
    char block[4096];
    for (;;) {
        struct pollfd fds[] = {{.fd = STDIN_FILENO, .events = POLLIN},
                               {.fd = interrupts_fd(), .events = POLLIN}};
        if (poll(fds, 2, -1) < 0 && errno != EINTR)
            return LINE_OVER;
        if (interrupts)
            return LINE_INTERRUPTED;
        if (!fds[0].revents)
            continue;
        ssize_t n = read(STDIN_FILENO, block, sizeof block);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return LINE_OVER;
        strbuf_append(&r->rest, block, (size_t)n);
        return r->rest.failed ? LINE_OVER : LINE_READ;
    }
}

enum line_end line_reader_next(struct line_reader *r, const char *prompt, bool commands,
                               struct strbuf *out)
{
    if (r->edit)
        return line_edit_next(r->edit, prompt, commands, out);
    FILE *to = isatty(STDOUT_FILENO) ? stdout : stderr;
    fputs(prompt, to);
    fflush(to);
    while (!take_line(r, out)) {
        enum line_end end = read_more(r);
        if (end == LINE_INTERRUPTED)
            strbuf_clear(&r->rest);
        if (end != LINE_READ)
            return end;
    }
    return LINE_READ;
}
