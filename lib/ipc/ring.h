/* A ring of fixed 64-byte records in shared memory, with one producer and one consumer in two
 * processes.
 *
 * Indices run free (32 bits, compared by difference). The producer publishes a record with a
 * release store of `tail`, paired with the consumer's acquire load; the consumer frees it with a
 * release store of `head`, paired with the producer's acquire load. Each index stands on a cache
 * line of its own, written by one side only. What the other side wrote is input: each end checks
 * indices before use, and a ring with invalid indices stays unusable. */
#ifndef MOED_IPC_RING_H
#define MOED_IPC_RING_H

#include "base/error.h"
#include "ipc/doorbell.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RING_RECORD_BYTES   64
#define RING_LAYOUT_VERSION 1

/* In shared memory, followed by `capacity` records. ring.c asserts every offset. */
struct ring_header {
    uint32_t magic, version, capacity, reserved; /* written once by ring_init */
    _Alignas(64) _Atomic uint32_t tail;          /* producer */
    _Alignas(64) _Atomic uint32_t head;          /* consumer */
    struct doorbell doorbell;                    /* producer rings, consumer waits */
};

/* One process's end, in private memory. One thread at a time. */
struct ring {
    struct ring_header *header;
    uint8_t *records;
    uint32_t capacity;  /* checked copy */
    uint32_t own, peer; /* own index; last seen index of the other side */
};

size_t ring_bytes(uint32_t capacity); /* power of two */
void ring_init(void *memory, uint32_t capacity);
/* Attach either end to an initialised ring of at most `bytes` bytes at memory (64-byte aligned). An
 * end is attached once in a ring's life. */
enum error_code ring_attach(struct ring *r, void *memory, size_t bytes, struct error *e);

/* Copy one record of RING_RECORD_BYTES. 1: done. 0: the ring is full, or empty. -1: the other side
 * wrote invalid indices. */
int ring_push(struct ring *r, const void *record); /* does not ring the doorbell */
int ring_pop(struct ring *r, void *record);
void ring_notify(struct ring *r); /* producer: ring, after one or more pushes */
/* Consumer: wait until there is a record, or *stop is set and the doorbell rung (by a watcher that
 * noticed a death), or timeout_ms (-1: no limit) is over. stop may be NULL. True: there is a
 * record, or the ring is broken, which ring_pop reports. */
bool ring_wait(struct ring *r, const _Atomic bool *stop, struct spinner *spinner, int timeout_ms);

#endif
