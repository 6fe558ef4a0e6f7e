/* Progress; see progress.h. */
#include "client/cli/progress.h"

#include "base/clock.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define LINE_INTERVAL_NS 3000000000ull
#define BAR_CELLS        30

void progress_begin(struct progress *p)
{
    memset(p, 0, sizeof *p);
    const char *term = getenv("TERM");
    p->terminal = isatty(STDERR_FILENO) && term && strcmp(term, "dumb") != 0;
}

/* The number before the first '%'; -1: none. */
static int find_percent(const char *text)
{
    const char *sign = strchr(text, '%'), *start = sign;
    while (start && start > text && isdigit((unsigned char)start[-1]))
        start--;
    if (!sign || start == sign || sign - start > 3)
        return -1;
    int percent = atoi(start);
    return percent <= 100 ? percent : 100;
}

static int terminal_width(void)
{
    struct winsize size;
    return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 10 ? size.ws_col : 80;
}

static void draw(struct progress *p, const char *text, int percent)
{
    char bar[BAR_CELLS + 1] = "", line[512];
    int filled = percent * BAR_CELLS / 100;
    for (int i = 0; i < BAR_CELLS && percent >= 0; i++) {
        bar[i] = i < filled ? '#' : '.';
        bar[i + 1] = '\0';
    }
    snprintf(line, sizeof line, "%s%s%s%s", percent >= 0 ? "[" : "", bar, percent >= 0 ? "] " : "",
             text);
    fprintf(stderr, "\r\033[K%.*s", terminal_width() - 1, line);
    fflush(stderr);
    p->drawn = true;
}

void progress_show(struct progress *p, const char *who, const char *detail)
{
    char text[128];
    snprintf(text, sizeof text, "%s: %.100s", who, detail);
    if (strcmp(text, p->last) == 0)
        return;
    uint64_t now = clock_ns();
    if (p->terminal) {
        draw(p, text, find_percent(detail));
    } else {
        /* The first line comes only when starting takes long enough to wonder. */
        if (!p->shown_ns)
            p->shown_ns = now;
        if (now - p->shown_ns < LINE_INTERVAL_NS)
            return;
        fprintf(stderr, "moed: %s\n", text);
        p->shown_ns = now;
    }
    memcpy(p->last, text, sizeof p->last);
}

void progress_end(struct progress *p)
{
    if (p->drawn)
        fputs("\r\033[K", stderr);
    p->drawn = false;
}
