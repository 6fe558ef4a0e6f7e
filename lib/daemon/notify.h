/* The service manager's notification protocol (sd_notify(3)): datagrams to $NOTIFY_SOCKET. Without
 * that variable these functions have no effect. Any thread. */
#ifndef MOED_DAEMON_NOTIFY_H
#define MOED_DAEMON_NOTIFY_H

#include <stdbool.h>
#include <stdint.h>

/* Send one "KEY=value" assignment, or several, one a line. Where the manager's queue is full, an
 * important message waits for a few seconds; any other is dropped. */
void notify_send(const char *assignments, bool important);

/* The interval within which the manager expects WATCHDOG=1, in microseconds; 0: it expects none. */
uint64_t notify_watchdog_us(void);

#endif
