/* Progress; see progress.h. */
#include "client/cli/progress.h"

#include "base/clock.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define LINE_INTERVAL_NS 3000000000ull
#define DUE_INTERVAL_S   0.2
#define BAR_CELLS        30

void progress_begin(struct progress *p)
{
    memset(p, 0, sizeof *p);
    const char *term = getenv("TERM");
    p->started_s = clock_s();
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

void progress_show(struct progress *p, const char *name, const char *detail)
{
    char text[128];
    snprintf(text, sizeof text, "%s: %.100s", name, detail);
    if (strcmp(text, p->last) == 0)
        return;
    uint64_t now = clock_ns();
    if (p->terminal) {
        draw(p, text, find_percent(detail));
    } else {
        /* What takes less than the interval prints no line. */
        if (!p->shown_ns)
            p->shown_ns = now;
        if (now - p->shown_ns < LINE_INTERVAL_NS)
            return;
        fprintf(stderr, "moed: %s\n", text);
        p->shown_ns = now;
    }
    memcpy(p->last, text, sizeof p->last);
}

bool progress_is_due(struct progress *p)
{
    double now_s = clock_s();
    if (now_s < p->due_s)
        return false;
    p->due_s = now_s + DUE_INTERVAL_S;
    return true;
}

void progress_show_tokens(struct progress *p, const char *name, const char *figures, uint64_t done,
                          uint64_t total)
{
    double speed = (double)done / (clock_s() - p->started_s);
    char detail[112];
    int n = snprintf(detail, sizeof detail, "%.0f%% %s",
                     floor(100.0 * (double)done / (double)total), figures);
    if (done && n < (int)sizeof detail)
        snprintf(detail + n, sizeof detail - (size_t)n, "%.0f tokens/s, %.0f s left", speed,
                 (double)(total - done) / speed);
    progress_show(p, name, detail);
}

void progress_end(struct progress *p)
{
    if (p->drawn)
        fputs("\r\033[K", stderr);
    p->drawn = false;
}
