/* An allocator for unpacking a peer's protobuf message that stops at a number of bytes: a small
 * message can otherwise ask for much memory. What it gives comes from malloc, so that
 * free_unpacked(m, NULL) frees it. */
#ifndef MOED_DAEMON_DECODE_LIMIT_H
#define MOED_DAEMON_DECODE_LIMIT_H

#include <protobuf-c/protobuf-c.h>
#include <stddef.h>

#define DECODE_LIMIT_BYTES                                                                         \
    (64u << 20) /* enough for any message of RPC_MESSAGE_BYTES that is real */

struct decode_limit {
    ProtobufCAllocator allocator; /* hand this to unpack */
    size_t left;
};

/* For one message; stays where it is while in use. */
void decode_limit_init(struct decode_limit *l, size_t bytes);

#endif
