/* cusim: fibers, threads inside one OS thread that switch explicitly to each other. */
#ifndef CUSIM_FIBER_H
#define CUSIM_FIBER_H

#include <stddef.h>

struct fiber {
    void *context; /* the saved stack pointer while another fiber runs */
    char *stack;   /* lowest byte; of the OS thread for its own */
    size_t stack_bytes;
    void *fake_stack; /* AddressSanitizer's, while another fiber runs */
};

/* Makes a fiber of the calling thread, so that others can switch from and to it. */
void fiber_init_thread(struct fiber *f);
/* Makes a fiber that will run entry(), which must not return, on a stack of its own. Stacks are
 * never freed. */
void fiber_init(struct fiber *f, unsigned number, void (*entry)());
/* Restarts the fiber in entry(), in any state. */
void fiber_restart(struct fiber *f, void (*entry)());
/* Switches from the running fiber `from`; returns when another fiber switches to it. */
void fiber_switch(struct fiber *from, struct fiber *to);
/* entry() must call this first. */
void fiber_entered();

#endif
