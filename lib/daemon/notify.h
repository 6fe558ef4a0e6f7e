/* The service manager's notification protocol (sd_notify(3)), spoken by hand: datagrams to
 * $NOTIFY_SOCKET. Does nothing where that is not set. Any thread. */
#ifndef MOED_DAEMON_NOTIFY_H
#define MOED_DAEMON_NOTIFY_H

#include <stdbool.h>
#include <stdint.h>

/* One "KEY=value" assignment, or several lines of them. An important one is waited with for a few
 * seconds where the manager's queue is full; another is dropped then. */
void notify_send(const char *assignments, bool important);

/* Microseconds within which the manager wants WATCHDOG=1; 0: it does not. */
uint64_t notify_watchdog_us(void);

#endif
