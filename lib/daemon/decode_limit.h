/* A bounded allocator for unpacking a peer's protobuf message: without a bound, a small message can
 * make the receiver allocate much memory. The memory comes from malloc, so free_unpacked(m, NULL)
 * frees it. */
#ifndef MOED_DAEMON_DECODE_LIMIT_H
#define MOED_DAEMON_DECODE_LIMIT_H

#include <protobuf-c/protobuf-c.h>
#include <stddef.h>

/* Enough for any well-formed message of RPC_MESSAGE_BYTES. */
#define DECODE_LIMIT_BYTES (64u << 20)

struct decode_limit {
    ProtobufCAllocator allocator; /* hand this to unpack */
    size_t left;
};

/* Enough for any well-formed request of RPC_REQUEST_BYTES. */
#define DECODE_REQUEST_BYTES (256u << 10)

/* For one message. l must not move while it is in use. */
void decode_limit_init(struct decode_limit *l, size_t bytes);

#endif
