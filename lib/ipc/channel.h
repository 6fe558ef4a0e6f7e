/* A two-way channel between one frontend and the worker. It delivers messages in order and drops
 * none, and reports to each side when the other has gone. It takes over a connection that rpc.h
 * made: rpc_call_open in the frontend, `adopt` of struct rpc_reply in the worker. */
#ifndef MOED_IPC_CHANNEL_H
#define MOED_IPC_CHANNEL_H

#include "base/error.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct channel;

/* Called on the channel's thread, in order: for each message (borrowed for the call), and once with
 * data NULL, after the peer has gone. */
typedef void channel_callback(void *arg, const uint8_t *data, size_t len);

/* The memory of a server's channels, all together: messages that peers have not read, and messages
 * that are being received. Where it is used up, a channel that has more than its fair share (limit
 * / channels) loses its peer at the next message; the others do not notice. So at most twice the
 * limit is in use. */
struct channel_group {
    size_t limit;
    _Atomic size_t bytes;
    _Atomic unsigned channels;
};

/* A channel over fd, a connected stream socket; takes fd also where it fails. group: NULL in a
 * client. With a group the channel receives nothing while more than CHANNEL_PAUSE_BYTES wait for
 * its peer: a client that does not read its replies cannot ask for more. (A client itself reads
 * always, so the two cannot wait for each other.) */
#define CHANNEL_PAUSE_BYTES (1u << 20)
enum error_code channel_open(int fd, struct channel_group *group, channel_callback *callback,
                             void *arg, struct channel **out, struct error *e);

/* Queue a copy of the message. Any thread; never blocks. ERROR_UNAVAILABLE: closed. ERROR_LIMIT:
 * more than CHANNEL_QUEUE_BYTES wait, far above what the protocol's window lets a well-behaved pair
 * reach, or the group's memory is used up. */
#define CHANNEL_QUEUE_BYTES (64u << 20)
enum error_code channel_send(struct channel *c, const uint8_t *data, size_t len, struct error *e);

/* Stop: send what is queued, for at most flush_ms, and join the threads. Not from the callback.
 * After it returns the callback runs no more. */
void channel_close(struct channel *c, int flush_ms); /* takes NULL */

/* In a child of fork, where the channel's threads do not run: closes the child's copies of the
 * descriptors and nothing else. The peer does not notice. The channel cannot be used any more. */
void channel_abandon(struct channel *c); /* takes NULL */

#endif
