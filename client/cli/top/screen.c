/* The terminal of `moed top`; see screen.h. */
#include "client/cli/top/screen.h"

#ifdef MOED_HAS_NCURSES

#include "client/cli/complain.h"

#define NCURSES_WIDECHAR 1
#include <curses.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static SCREEN *screen;
static bool colors;
static volatile sig_atomic_t ended;

static void on_end(int signal_number)
{
    (void)signal_number;
    ended = 1;
}

bool screen_is_built(void)
{
    return true;
}

bool screen_open(void)
{
    const char *term = getenv("TERM");
    struct sigaction end = {.sa_handler = on_end}; /* no SA_RESTART: waiting must end */
    if (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO)) {
        cli_complain("top: this is no terminal: moed top --once prints the figures once");
        return false;
    }
    sigaction(SIGINT, &end, NULL);
    sigaction(SIGTERM, &end, NULL);
    sigaction(SIGHUP, &end, NULL);
    screen = newterm(NULL, stdout, stdin);
    if (!screen) {
        cli_complain("top: a terminal of type '%.40s' (TERM) is not known: moed top --once prints "
                     "the figures once",
                     term ? term : "");
        return false;
    }
    set_term(screen);
    cbreak();
    noecho();
    nonl();
    keypad(stdscr, TRUE);
    set_escdelay(50);
    curs_set(0);
    const char *no_color = getenv("NO_COLOR"); /* https://no-color.org */
    colors = has_colors() && !(no_color && *no_color);
    if (colors) {
        start_color();
        use_default_colors();
        init_pair(1, COLOR_RED, -1);
    }
    return true;
}

void screen_close(void)
{
    if (!screen)
        return;
    endwin();
    delscreen(screen);
    screen = NULL;
}

void screen_size(int *width, int *height)
{
    getmaxyx(stdscr, *height, *width);
}

static attr_t attribute(enum view_style style)
{
    switch (style) {
    case STYLE_TITLE:
        return A_BOLD;
    case STYLE_HEAD:
        return A_REVERSE;
    case STYLE_ALARM:
        return A_BOLD | (colors ? (attr_t)COLOR_PAIR(1) : A_NORMAL);
    default:
        return A_NORMAL;
    }
}

void screen_show(const struct view_page *page)
{
    int width, height;
    screen_size(&width, &height);
    erase();
    for (int i = 0; i < (int)page->n && i < height; i++) {
        attr_t style = attribute(page->style[i]);
        attrset(style);
        if (page->text[i].len)
            mvaddstr(i, 0, page->text[i].data);
        if (page->style[i] == STYLE_HEAD)
            mvchgat(i, 0, -1, style, 0, NULL);
    }
    attrset(A_NORMAL);
    refresh();
}

int screen_key(int timeout_ms)
{
    timeout(timeout_ms);
    int key = ended ? ERR : getch();
    if (ended)
        return SCREEN_ENDED;
    if (key == KEY_RESIZE)
        return SCREEN_RESIZED;
    if (key == KEY_F(10))
        return 'q';
    return key >= 0 && key < 128 ? key : SCREEN_NO_KEY;
}

#else

bool screen_is_built(void)
{
    return false;
}

bool screen_open(void)
{
    return false;
}

void screen_close(void) {}

void screen_size(int *width, int *height)
{
    *width = 80;
    *height = 24;
}

void screen_show(const struct view_page *page) {}

int screen_key(int timeout_ms)
{
    return SCREEN_ENDED;
}

#endif
