/* Ctrl-C; see interrupt.h. */
#include "client/cli/interrupt.h"

#include "client/cli/ask.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

enum { SURVIVED = 2 };

volatile sig_atomic_t interrupts;
static volatile sig_atomic_t holds;    /* holds that have begun and not ended */
static volatile sig_atomic_t survives; /* interrupts_survive was called */
static void (*volatile before_exit)(void);
static int wake_pipe[2];

static void on_interrupt(int signal_number)
{
    (void)signal_number;
    bool patient = survives ? interrupts < SURVIVED : holds && !interrupts;
    if (!patient) {
        if (before_exit)
            before_exit();
        _exit(EXIT_INTERRUPTED);
    }
    interrupts++;
    int saved = errno;
    ssize_t n = write(wake_pipe[1], "", 1);
    (void)n; /* full: poll is awake already */
    errno = saved;
}

bool interrupts_watch(void)
{
    if (pipe2(wake_pipe, O_CLOEXEC | O_NONBLOCK)) {
        cli_complain("cannot create a pipe: %s", strerror(errno));
        return false;
    }
    struct sigaction interrupt = {.sa_handler = on_interrupt}; /* no SA_RESTART: a write must end */
    sigaction(SIGINT, &interrupt, NULL);
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    sigaction(SIGPIPE, &ignore, NULL);
    return true;
}

int interrupts_fd(void)
{
    return wake_pipe[0];
}

void interrupts_hold(bool begins)
{
    holds += begins ? 1 : -1;
}

void interrupts_survive(void)
{
    survives = 1;
}

void interrupts_before_exit(void (*undo)(void))
{
    before_exit = undo;
}

void interrupts_forget(void)
{
    char block[64];
    interrupts = 0;
    while (read(wake_pipe[0], block, sizeof block) > 0)
        ;
}
