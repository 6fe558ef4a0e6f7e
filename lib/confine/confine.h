/* Gives up system calls that a daemon of moed needs no more once it has started: new programs and
 * processes, other processes' memory, sockets that reach other machines, changes of the system. A
 * fault that lets an attacker run code in it then reaches its files and its shared memory, and no
 * shell.
 *
 * moed-http, which strangers talk to, keeps a list of what is allowed instead
 * (client/http/confine.h). A worker with a GPU runs the driver's code, of which nobody has a list.
 */
#ifndef MOED_CONFINE_CONFINE_H
#define MOED_CONFINE_CONFINE_H

#include <stdbool.h>

/* Of all threads, for good; a forbidden call fails with EPERM. Logs a warning where the kernel
 * refuses. uses_uring: io_uring stays, which can make sockets too. Sanitizer builds keep all calls:
 * their reports start programs and threads of their own.
 */
void confine_daemon(bool uses_uring);

#endif
