/* A program that moed-models runs: `moed up` or `moed down`. Its output goes to a pipe, of which
 * the last line is kept: it says why the program failed. One thread uses a child. */
#ifndef MOED_DEPLOY_MODELS_CHILD_H
#define MOED_DEPLOY_MODELS_CHILD_H

#include "base/error.h"

#include <stdbool.h>
#include <sys/types.h>

struct child {
    pid_t pid; /* 0: none runs */
    int out;   /* the pipe */
    char line[512], last[512];
    size_t len; /* of `line`, which is not complete yet */
};

/* arguments: NULL-terminated, the program's path first. */
enum error_code child_start(struct child *c, char *const arguments[], struct error *e);
/* Reads what has come, and reaps. True: it has ended, with *exit_code (128 + signal where one
 * killed it), and c->last is its last line. */
bool child_poll(struct child *c, int *exit_code);
void child_interrupt(const struct child *c); /* SIGINT, if it runs */
/* Blocks until it has ended, for timeout_ms at most; then kills it. */
void child_end(struct child *c, unsigned timeout_ms);
/* Blocks until it has ended. Returns the exit code. */
int child_wait(struct child *c);

#endif
