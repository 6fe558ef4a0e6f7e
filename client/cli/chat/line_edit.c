/* libedit; see line_edit.h. */
#include "client/cli/chat/line_edit.h"

#ifdef MOED_HAS_EDIT

#include "base/utf8.h"
#include "client/cli/chat/file_names.h"
#include "client/cli/chat/history_file.h"
#include "client/cli/chat/paste.h"
#include "client/cli/interrupt.h"

#include <errno.h>
#include <histedit.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>
#include <wchar.h>

enum { HISTORY_LINES = 500, ESCAPE_MS = 50 };

/* Stands for a paste that has come whole. No keyboard sends this control character, and libedit's
 * tables of keys have a place for it. */
enum { PASTED = 0x80 };

struct line_edit {
    EditLine *el;
    History *history;
    char *history_file;
    const char *prompt;
    bool commands;        /* the line may be a command */
    mbstate_t partial;    /* of a character whose bytes have come in part */
    struct strbuf ahead;  /* bytes that were read and not taken yet */
    struct strbuf pasted; /* the text for PASTED */
};

/* ---- The terminal's modes ---- */

/* The terminal has another size, or the program goes on after Ctrl-Z. */
static volatile sig_atomic_t changed;

static void on_change(int signal_number)
{
    (void)signal_number;
    changed = 1;
}

static struct termios found; /* before libedit changed them */
static volatile sig_atomic_t has_found, marks_pastes;

static void write_mode(const char *text)
{
    ssize_t n = write(STDOUT_FILENO, text, strlen(text));
    (void)n; /* the lines show whether the terminal has gone */
}

static void mark_pastes(bool on)
{
    marks_pastes = on;
    write_mode(on ? PASTE_ON : PASTE_OFF);
}

/* Signal handlers call it. */
static void give_back_terminal(void)
{
    if (marks_pastes)
        write_mode(PASTE_OFF);
    if (has_found)
        tcsetattr(STDIN_FILENO, TCSANOW, &found);
}

/* Ends the program as the signal would, with the terminal as it was. */
static void on_end(int signal_number)
{
    give_back_terminal();
    signal(signal_number, SIG_DFL);
    raise(signal_number);
}

/* Ctrl-Z. */
static void on_stop(int signal_number)
{
    int saved = errno;
    struct sigaction again, stop = {.sa_handler = SIG_DFL};
    give_back_terminal();
    sigaction(signal_number, &stop, &again);
    raise(signal_number);
    sigaction(signal_number, &again, NULL); /* the program goes on */
    changed = 1;
    errno = saved;
}

static void catch_signals(void)
{
    static const int ends[] = {SIGTERM, SIGHUP, SIGQUIT};
    struct sigaction change = {.sa_handler = on_change}; /* no SA_RESTART: poll must end */
    struct sigaction end = {.sa_handler = on_end}, before;
    struct sigaction stop = {.sa_handler = on_stop,
                             .sa_flags = SA_NODEFER}; /* it raises it again */
    sigaction(SIGWINCH, &change, NULL);
    sigaction(SIGCONT, &change, NULL);
    has_found = tcgetattr(STDIN_FILENO, &found) == 0;
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        sigaction(ends[i], &end, NULL);
    if (sigaction(SIGTSTP, NULL, &before) == 0 && before.sa_handler != SIG_IGN)
        sigaction(SIGTSTP, &stop, NULL);
    interrupts_before_exit(give_back_terminal);
}

static void adapt(EditLine *el)
{
    changed = 0;
    el_set(el, EL_PREP_TERM, 0); /* else libedit believes that its modes still hold */
    el_set(el, EL_PREP_TERM, 1);
    mark_pastes(true);
    el_resize(el);
    el_set(el, EL_REFRESH);
}

/* ---- Text ---- */

static struct line_edit *editor_of(EditLine *el)
{
    struct line_edit *l;
    el_get(el, EL_CLIENTDATA, &l);
    return l;
}

static char *prompt_of(EditLine *el)
{
    return (char *)editor_of(el)->prompt;
}

/* What stands for bytes that are no character: U+FFFD, where the locale has it. */
static wchar_t replacement(void)
{
    char bytes[MB_LEN_MAX];
    mbstate_t state = {0};
    return wcrtomb(bytes, 0xfffd, &state) == (size_t)-1 ? L'?' : 0xfffd;
}

/* Puts UTF-8 text in front of the cursor. */
static void insert(EditLine *el, const struct strbuf *text)
{
    wchar_t *wide = text->len ? calloc(text->len + 1, sizeof *wide) : NULL;
    mbstate_t state = {0};
    for (size_t i = 0, n = 0, used; wide && i < text->len; i += used, n++) {
        used = mbrtowc(&wide[n], text->data + i, text->len - i, &state);
        if (used == 0 || used > text->len) { /* no character, in this locale */
            memset(&state, 0, sizeof state);
            wide[n] = replacement();
            used = utf8_valid_length(text->data + i, text->len - i);
            used = used ? used : 1;
        }
    }
    if (wide)
        el_winsertstr(el, wide);
    free(wide);
}

/* Appends libedit's line up to the cursor. */
static void append_line(EditLine *el, struct strbuf *out)
{
    const LineInfoW *line = el_wline(el);
    mbstate_t state = {0};
    for (const wchar_t *c = line->buffer; c < line->cursor; c++) {
        char bytes[MB_LEN_MAX];
        size_t n = wcrtomb(bytes, *c, &state);
        if (n != (size_t)-1)
            strbuf_append(out, bytes, n);
    }
}

/* ---- What the keyboard sends ---- */

/* Waits for bytes and reads them into l->ahead. 1: some came; 0: timeout_ms has passed (-1: none);
 * -1: the end, an error, or Ctrl-C (EINTR), for which libedit's own reader would not return. */
static int read_ahead(struct line_edit *l, int timeout_ms)
{
    for (;;) {
        char block[4096];
        struct pollfd fds[] = {{.fd = STDIN_FILENO, .events = POLLIN},
                               {.fd = interrupts_fd(), .events = POLLIN}};
        int ready = poll(fds, 2, timeout_ms);
        if (ready < 0 && errno != EINTR)
            return -1;
        if (interrupts) {
            strbuf_clear(&l->ahead);
            errno = EINTR;
            return -1;
        }
        if (changed)
            adapt(l->el);
        if (ready == 0)
            return 0;
        if (ready < 0 || !fds[0].revents)
            continue;
        ssize_t n = read(STDIN_FILENO, block, sizeof block);
        if (n < 0 && errno == EINTR)
            continue;
        strbuf_append(&l->ahead, block, n > 0 ? (size_t)n : 0);
        return n > 0 && !l->ahead.failed ? 1 : -1;
    }
}

static void drop_ahead(struct line_edit *l, size_t n)
{
    l->ahead.len -= n;
    memmove(l->ahead.data, l->ahead.data + n, l->ahead.len + 1);
}

/* Whether l->ahead begins with PASTE_BEGIN. Its bytes come at once, those of a person do not. */
static bool paste_begins(struct line_edit *l)
{
    size_t mark = strlen(PASTE_BEGIN), n;
    do {
        n = l->ahead.len < mark ? l->ahead.len : mark;
        if (memcmp(l->ahead.data, PASTE_BEGIN, n) != 0)
            return false;
    } while (n < mark && read_ahead(l, ESCAPE_MS) > 0);
    return n == mark;
}

/* 1: l->pasted is the text; -1: as read_ahead. */
static int read_paste(struct line_edit *l)
{
    struct strbuf behind;
    size_t from = 0;
    drop_ahead(l, strlen(PASTE_BEGIN));
    strbuf_clear(&l->pasted);
    strbuf_init(&behind);
    int got = 1;
    for (;;) {
        strbuf_append(&l->pasted, l->ahead.data, l->ahead.len);
        strbuf_clear(&l->ahead);
        if (l->pasted.failed || paste_ends(&l->pasted, from, &behind))
            break;
        from = l->pasted.len;
        if ((got = read_ahead(l, -1)) < 0)
            break;
    }
    strbuf_append(&l->ahead, behind.data ? behind.data : "", behind.len);
    strbuf_fini(&behind);
    paste_clean(&l->pasted);
    return l->pasted.failed || l->ahead.failed ? -1 : got;
}

static int next_character(EditLine *el, wchar_t *out)
{
    struct line_edit *l = editor_of(el);
    for (;;) {
        if (!l->ahead.len && read_ahead(l, -1) < 0)
            return interrupts ? -1 : 0;
        if (l->ahead.data[0] == '\033' && paste_begins(l)) {
            *out = PASTED;
            return read_paste(l);
        }
        if (!l->ahead.len)
            continue; /* Ctrl-C came meanwhile */
        bool begins = mbsinit(&l->partial);
        size_t used = mbrtowc(out, l->ahead.data, 1, &l->partial);
        bool stray = used == (size_t)-1;
        if (!stray || begins) /* else the byte may begin a character */
            drop_ahead(l, 1);
        if (used == (size_t)-2)
            continue;
        if (stray) {
            memset(&l->partial, 0, sizeof l->partial);
            *out = replacement();
        }
        return 1;
    }
}

/* ---- Keys ---- */

static unsigned char on_paste(EditLine *el, int key)
{
    struct line_edit *l = editor_of(el);
    (void)key;
    insert(el, &l->pasted);
    strbuf_clear(&l->pasted);
    return CC_REFRESH;
}

/* The file's name behind a command that takes one; NULL: there is none. */
static const char *file_argument(const char *line)
{
    static const char *const takes_file[] = {"/read", "/load", "/save"};
    for (size_t i = 0; i < sizeof takes_file / sizeof *takes_file; i++) {
        size_t len = strlen(takes_file[i]), blanks;
        if (strncmp(line, takes_file[i], len) == 0 && (blanks = strspn(line + len, " \t")))
            return line + len + blanks;
    }
    return NULL;
}

static unsigned char complete(EditLine *el, const char *typed)
{
    struct strbuf more, names;
    unsigned char result = CC_ERROR; /* a beep */
    strbuf_init(&more);
    strbuf_init(&names);
    size_t n = file_names_complete(typed, &more, &names);
    if (more.len && !more.failed) {
        insert(el, &more);
        result = CC_REFRESH;
    } else if (n > 1 && !names.failed) {
        printf("\n%s", names.data);
        fflush(stdout);
        result = CC_REDISPLAY;
    }
    strbuf_fini(&more);
    strbuf_fini(&names);
    return result;
}

/* Completes a file's name where a command takes one; elsewhere a tab is text. */
static unsigned char on_tab(EditLine *el, int key)
{
    struct line_edit *l = editor_of(el);
    struct strbuf line;
    strbuf_init(&line);
    (void)key;
    if (l->commands)
        append_line(el, &line);
    const char *typed = line.len && !line.failed ? file_argument(line.data) : NULL;
    unsigned char result = CC_REFRESH;
    if (typed)
        result = complete(el, typed);
    else
        el_winsertstr(el, L"\t");
    strbuf_fini(&line);
    return result;
}

/* ---- From outside ---- */

static void bind_keys(EditLine *el)
{
    el_set(el, EL_BIND, "^R", "em-inc-search-prev", NULL);
    /* of wide strings, which it borrows: el_set would copy them and lose the copies */
    el_wset(el, EL_ADDFN, L"moed-complete", L"complete a file name", on_tab);
    el_wset(el, EL_ADDFN, L"moed-paste", L"insert what was pasted", on_paste);
    el_set(el, EL_BIND, "^I", "moed-complete", NULL);
    el_source(el, NULL); /* the user's own keys, and perhaps those of vi */
    el_set(el, EL_BIND, "\\200", "moed-paste", NULL);
    el_set(el, EL_BIND, "-a", "\\200", "moed-paste", NULL);
}

static bool prepare(struct line_edit *l)
{
    HistEvent event;
    catch_signals();
    l->el = el_init("moed", stdin, stdout, stderr);
    l->history = history_init();
    if (!l->el || !l->history)
        return false;
    history(l->history, &event, H_SETSIZE, HISTORY_LINES);
    history(l->history, &event, H_SETUNIQUE, 1);
    if (l->history_file)
        history_file_load(l->history_file, l->history, HISTORY_LINES);
    el_set(l->el, EL_CLIENTDATA, l);
    el_set(l->el, EL_PROMPT, prompt_of);
    el_set(l->el, EL_EDITOR, "emacs");
    el_set(l->el, EL_HIST, history, l->history);
    el_set(l->el, EL_GETCFN, next_character);
    bind_keys(l->el);
    return true;
}

struct line_edit *line_edit_new(const char *history_file)
{
    struct line_edit *l = calloc(1, sizeof *l);
    if (!l)
        return NULL;
    strbuf_init(&l->ahead);
    strbuf_init(&l->pasted);
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
    strbuf_fini(&l->ahead);
    strbuf_fini(&l->pasted);
    free(l);
}

/* Keeps a line, unless it is the one before again. */
static void keep(struct line_edit *l, const char *line)
{
    HistEvent event;
    bool again = history(l->history, &event, H_FIRST) >= 0 && strcmp(event.str, line) == 0;
    if (again)
        return;
    history(l->history, &event, H_ENTER, line);
    if (l->history_file)
        history_file_append(l->history_file, line);
}

enum line_end line_edit_next(struct line_edit *l, const char *prompt, bool commands,
                             struct strbuf *out)
{
    int n = 0;
    l->prompt = prompt;
    l->commands = commands;
    changed = 0;
    el_resize(l->el);
    mark_pastes(true);
    const char *line = el_gets(l->el, &n);
    mark_pastes(false);
    bool whole = line && n > 0 && line[n - 1] == '\n';
    if (interrupts && !whole) {
        el_reset(l->el);
        return LINE_INTERRUPTED;
    }
    if (!line || n <= 0)
        return LINE_OVER;
    if (strspn(line, " \t\r\n") < (size_t)n)
        keep(l, line);
    size_t len = (size_t)n;
    while (len && line[len - 1] == '\n') /* that of Enter, and those of a paste before it */
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

enum line_end line_edit_next(struct line_edit *l, const char *prompt, bool commands,
                             struct strbuf *out)
{
    return LINE_OVER;
}

#endif
