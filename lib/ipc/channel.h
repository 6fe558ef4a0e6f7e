/* A private two-way channel between one frontend and the worker: messages in order, nothing
 * dropped, and each side learns when the other has gone.
 *
 * A unix stream socket with a framing of our own, not nng, which carries the requests and replies
 * of the control plane (rpc.h): closing an nng 1.5.2 pair socket deadlocks now and then when its
 * pipe goes with traffic in flight. What was seen: the process's one reaper thread waits for ever
 * inside nng for the end of an operation, nng_close waits for the reaper, and so does every later
 * close in the process. Threads that send while the peer hangs up brought it about; test_channel
 * does that many times. */
#ifndef MOED_IPC_CHANNEL_H
#define MOED_IPC_CHANNEL_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct channel;

/* Called on a thread of the channel's own, in order: a message (borrowed for the call), and once
 * closed (data NULL) after the peer has gone or was never there within peer_timeout_ms of
 * listening. */
typedef void channel_callback(void *arg, const uint8_t *data, size_t len);

/* Server side: listen; exactly one peer is let in, a process of the same user or root. Then the
 * socket's file is removed: whoever dials later finds nobody. */
enum error_code channel_listen(const char *url, int peer_timeout_ms, channel_callback *callback,
                               void *arg, struct channel **out, struct error *e);
/* Client side. Returns once the listener has let this end in. */
enum error_code channel_connect(const char *url, int timeout_ms, channel_callback *callback,
                                void *arg, struct channel **out, struct error *e);

/* Queue a message (copied); any thread. Never blocks: ERROR_UNAVAILABLE once closed, ERROR_LIMIT
 * when more than `CHANNEL_QUEUE_BYTES` wait (the protocol's window keeps a well-behaved pair far
 * below). */
#define CHANNEL_QUEUE_BYTES (64u << 20)
enum error_code channel_send(struct channel *c, const uint8_t *data, size_t len, struct error *e);

/* Stop, flush what is queued for at most flush_ms, join. Not from the callback. The callback does
 * not run after it returns. */
void channel_close(struct channel *c, int flush_ms); /* takes NULL */

#endif
