/* The rights of a process that runs as root, or that was given some of root's. Call these while the
 * process has one thread: the kernel takes capabilities from the calling thread alone. */
#ifndef MOED_CONFINE_PRIVILEGES_H
#define MOED_CONFINE_PRIVILEGES_H

/* Gives up all capabilities. */
void confine_privileges_all(void);
/* The same, except those by which a daemon of root reads another user's model file, writes in
 * another user's directory, pins memory and places it. */
void confine_privileges_daemon(void);

#endif
