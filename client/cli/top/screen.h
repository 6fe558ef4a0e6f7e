/* The terminal of `moed top`, with ncurses. One at a time. */
#ifndef MOED_CLI_TOP_SCREEN_H
#define MOED_CLI_TOP_SCREEN_H

#include "client/cli/top/view.h"

#include <stdbool.h>

/* What screen_key returns beside characters. */
enum { SCREEN_NO_KEY = -1, SCREEN_RESIZED = -2, SCREEN_ENDED = -3 };

/* True where the program was built with ncurses. */
bool screen_is_built(void);
/* Takes the terminal. False: it has complained. */
bool screen_open(void);
void screen_close(void);
void screen_size(int *width, int *height);
void screen_show(const struct view_page *page);
/* Waits at most timeout_ms for a key. SCREEN_ENDED: Ctrl-C, SIGTERM, or the terminal has gone. */
int screen_key(int timeout_ms);

#endif
