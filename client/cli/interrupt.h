/* Ctrl-C in verbs that wait for a request: the first one asks for the request's end, a second one,
 * or one while nothing is held, ends the program at once. The worker cancels what a frontend leaves
 * behind. */
#ifndef MOED_CLI_INTERRUPT_H
#define MOED_CLI_INTERRUPT_H

#include <signal.h>
#include <stdbool.h>

#define EXIT_INTERRUPTED 130 /* 128 + SIGINT, as shells report it */

/* Not 0 once the first Ctrl-C has come while a request ran. */
extern volatile sig_atomic_t interrupts;

/* From now on; SIGPIPE is ignored too. Complains. */
bool interrupts_watch(void);
/* Readable from the first Ctrl-C on, for poll(2). */
int interrupts_fd(void);
/* A request begins or ends, or a row of them that keeps what is finished: meanwhile the first Ctrl-C ends it in good order. One
 * may lie in the other. */
void interrupts_hold(bool begins);

#endif
