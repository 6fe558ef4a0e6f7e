/* libedit; see line_edit.h. */
#include "client/cli/chat/line_edit.h"

#ifdef MOED_HAS_EDIT

#include "client/cli/interrupt.h"

#include <errno.h>
#include <histedit.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>
#include <wchar.h>

enum { HISTORY_LINES = 500 };

struct line_edit {
    EditLine *el;
    History *history;
    char *history_file;
    const char *prompt;
    mbstate_t partial; /* of a character whose bytes have come in part */
};

/* The terminal has another size, or the program goes on after Ctrl-Z. */
static volatile sig_atomic_t changed;

static void on_change(int signal_number)
{
    (void)signal_number;
    changed = 1;
}

static struct termios found; /* the terminal's modes before libedit changed them */

/* Ends the program as the signal would, with the terminal as it was. */
static void on_end(int signal_number)
{
    tcsetattr(STDIN_FILENO, TCSANOW, &found);
    signal(signal_number, SIG_DFL);
    raise(signal_number);
}

static void adapt(EditLine *el)
{
    changed = 0;
    el_set(el, EL_PREP_TERM, 0); /* else libedit believes that its modes still hold */
    el_set(el, EL_PREP_TERM, 1);
    el_resize(el);
    el_set(el, EL_REFRESH);
}

static char *prompt_of(EditLine *el)
{
    struct line_edit *l;
    el_get(el, EL_CLIENTDATA, &l);
    return (char *)l->prompt;
}

/* Waits for a key or Ctrl-C. libedit's own reader would begin again after a signal. */
static int next_character(EditLine *el, wchar_t *out)
{
    struct line_edit *l;
    el_get(el, EL_CLIENTDATA, &l);
    for (;;) {
        struct pollfd fds[] = {{.fd = STDIN_FILENO, .events = POLLIN},
                               {.fd = interrupts_fd(), .events = POLLIN}};
        if (poll(fds, 2, -1) < 0 && errno != EINTR)
            return -1;
        if (interrupts) {
            errno = EINTR;
            return -1;
        }
        if (changed)
            adapt(el);
        if (!fds[0].revents)
            continue;
        char byte;
        ssize_t n = read(STDIN_FILENO, &byte, 1);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return (int)n;
        size_t used = mbrtowc(out, &byte, 1, &l->partial);
        if (used == (size_t)-2)
            continue;
        if (used == (size_t)-1) { /* no character of this locale */
            memset(&l->partial, 0, sizeof l->partial);
            continue;
        }
        return 1;
    }
}

static bool prepare(struct line_edit *l)
{
    HistEvent event;
    struct sigaction change = {.sa_handler = on_change}; /* no SA_RESTART: poll must end */
    sigaction(SIGWINCH, &change, NULL);
    sigaction(SIGCONT, &change, NULL);
    if (tcgetattr(STDIN_FILENO, &found) == 0) {
        struct sigaction end = {.sa_handler = on_end};
        sigaction(SIGTERM, &end, NULL);
        sigaction(SIGHUP, &end, NULL);
    }
    l->el = el_init("moed", stdin, stdout, stderr);
    l->history = history_init();
    if (!l->el || !l->history)
        return false;
    history(l->history, &event, H_SETSIZE, HISTORY_LINES);
    history(l->history, &event, H_SETUNIQUE, 1);
    if (l->history_file)
        history(l->history, &event, H_LOAD, l->history_file);
    el_set(l->el, EL_CLIENTDATA, l);
    el_set(l->el, EL_PROMPT, prompt_of);
    el_set(l->el, EL_EDITOR, "emacs");
    el_set(l->el, EL_HIST, history, l->history);
    el_set(l->el, EL_BIND, "^R", "em-inc-search-prev", NULL);
    /* of wide strings, which it borrows: el_set would copy them and lose the copies */
    el_wset(l->el, EL_ADDFN, L"complete", L"complete a file name", _el_fn_complete);
    el_set(l->el, EL_BIND, "^I", "complete", NULL);
    el_set(l->el, EL_GETCFN, next_character);
    el_source(l->el, NULL); /* the user's own keys */
    return true;
}

struct line_edit *line_edit_new(const char *history_file)
{
    struct line_edit *l = calloc(1, sizeof *l);
    if (!l)
        return NULL;
    l->history_file = history_file ? strdup(history_file) : NULL;
    if (prepare(l))
        return l;
    line_edit_free(l);
    return NULL;
}

void line_edit_free(struct line_edit *l)
{
    if (!l)
        return;
    if (l->el)
        el_end(l->el);
    if (l->history)
        history_end(l->history);
    free(l->history_file);
    free(l);
}

enum line_end line_edit_next(struct line_edit *l, const char *prompt, struct strbuf *out)
{
    HistEvent event;
    int n = 0;
    l->prompt = prompt;
    changed = 0;
    el_resize(l->el);
    const char *line = el_gets(l->el, &n);
    bool whole = line && n > 0 && line[n - 1] == '\n';
    if (interrupts && !whole) {
        el_reset(l->el);
        return LINE_INTERRUPTED;
    }
    if (!line || n <= 0)
        return LINE_OVER;
    if (strspn(line, " \t\r\n") < (size_t)n) {
        history(l->history, &event, H_ENTER, line);
        if (l->history_file)
            history(l->history, &event, H_SAVE, l->history_file);
    }
    size_t len = (size_t)n;
    if (line[len - 1] == '\n')
        len--;
    strbuf_clear(out);
    strbuf_append(out, line, len);
    return LINE_READ;
}

#else

struct line_edit *line_edit_new(const char *history_file)
{
    return NULL;
}

void line_edit_free(struct line_edit *l) {}

enum line_end line_edit_next(struct line_edit *l, const char *prompt, struct strbuf *out)
{
    return LINE_OVER;
}

#endif
