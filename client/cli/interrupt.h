/* Ctrl-C in verbs that wait for a request. The first Ctrl-C during a hold only sets `interrupts`,
 * so that the verb can cancel its request. A second one, or one outside of a hold, ends the program
 * at once; the worker then cancels its requests. */
#ifndef MOED_CLI_INTERRUPT_H
#define MOED_CLI_INTERRUPT_H

#include <signal.h>
#include <stdbool.h>

#define EXIT_INTERRUPTED 130 /* 128 + SIGINT, as shells report it */

/* Not 0 after the first Ctrl-C during a hold. */
extern volatile sig_atomic_t interrupts;

/* Installs the handler, and ignores SIGPIPE. Complains. */
bool interrupts_watch(void);
/* A descriptor for poll(2): readable from the first Ctrl-C on. */
int interrupts_fd(void);
/* Begins or ends a hold. Holds may be nested. */
void interrupts_hold(bool begins);

/* From now on Ctrl-C only counts `interrupts`, for verbs that a person talks to. The third one
 * without interrupts_forget between ends the program: it does not get on. */
void interrupts_survive(void);
/* Calls `undo` in the signal handler, before a Ctrl-C that nobody takes ends the program. */
void interrupts_before_exit(void (*undo)(void));
/* Forgets the Ctrl-C that has come; interrupts_fd waits for the next one. */
void interrupts_forget(void);

#endif
