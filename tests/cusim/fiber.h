/* cusim: fibers, threads of one OS thread that give way to each other by name. */
#ifndef CUSIM_FIBER_H
#define CUSIM_FIBER_H

#include <stddef.h>

struct fiber {
    void *context;    /* where it stands while it does not run */
    char *stack;      /* lowest byte; of the OS thread for its own */
    size_t stack_bytes;
    void *fake_stack; /* AddressSanitizer's, while it does not run */
};

/* The calling thread as a fiber, so that it can be switched away from and to. */
void fiber_init_thread(struct fiber *f);
/* A fiber that will run entry(), which must not return, on a stack of its own. Stacks are never given back. */
void fiber_init(struct fiber *f, unsigned number, void (*entry)());
/* Start anew in entry(), whatever it was doing. */
void fiber_restart(struct fiber *f, void (*entry)());
/* From is running; returns when something switches to it. */
void fiber_switch(struct fiber *from, struct fiber *to);
/* The first thing in entry(). */
void fiber_entered();

#endif
