/* The system calls that a process gives up, by seccomp: of all its threads, and for good. A
 * forbidden call fails with EPERM. A fault that lets an attacker run code in the process then
 * reaches its shared memory and its sockets, and no shell. */
#ifndef MOED_CONFINE_CALLS_H
#define MOED_CONFINE_CALLS_H

#include <stdbool.h>

enum confine_calls {
    /* All but a list: new programs and processes, others' memory, sockets of other families than
     * AF_UNIX, changes of the system. For a process with a GPU's driver, of whose calls nobody has
     * a list. */
    CONFINE_DRIVER,
    /* Only a list: files, memory, time, threads, unix sockets. */
    CONFINE_DAEMON,
    /* Without changing files, too: it reads them, makes and removes sockets. */
    CONFINE_FRONTEND,
    /* Only memory, and reading and writing descriptors that are open. */
    CONFINE_READER,
};

/* uring: a daemon keeps io_uring, by which it can also make sockets. Logs a warning where the
 * kernel refuses. Builds with sanitizers keep all calls, because their reports start programs and
 * threads. */
void confine_calls(enum confine_calls kind, bool uring);
/* True: this process has given up calls, so what fails now may fail for that. Any thread. */
bool confine_calls_given_up(void);

#endif
