/* A ring of fixed 64-byte records in shared memory, one producer and one consumer, in two
 * processes.
 *
 * Indices run free (32 bits, compared by difference); the producer publishes a record with a
 * release store of `tail`, paired with the consumer's acquire load; the consumer frees it with a
 * release store of `head`, paired with the producer's acquire load. Each side's index stands on a
 * cache line of its own, written by that side alone. What the other side wrote is input: indices
 * are checked before use, a ring whose indices make no sense is ERROR_PROTOCOL and stays unusable.
 */
#ifndef MOED_IPC_RING_H
#define MOED_IPC_RING_H

#include "base/error.h"
#include "ipc/doorbell.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RING_RECORD_BYTES   64
#define RING_LAYOUT_VERSION 1

/* What lies in shared memory, followed by capacity records. Every offset is asserted in ring.c. */
struct ring_header {
    uint32_t magic, version, capacity, reserved; /* written once by ring_init */
    _Alignas(64) _Atomic uint32_t tail;          /* producer */
    _Alignas(64) _Atomic uint32_t head;          /* consumer */
    struct doorbell doorbell;                    /* producer rings, consumer waits */
};

/* One process's end. Plain memory; not shared between threads without the caller's lock. */
struct ring {
    struct ring_header *header;
    uint8_t *records;
    uint32_t capacity;  /* checked copy */
    uint32_t own, peer; /* own index; last seen index of the other side */
};

size_t ring_bytes(uint32_t capacity); /* power of two */
void ring_init(void *memory, uint32_t capacity);
/* Attach either end to an initialised ring of at most `bytes` bytes at memory (64-byte aligned). */
enum error_code ring_attach(struct ring *r, void *memory, size_t bytes, struct error *e);

/* 1: done. 0: full / empty. -1: the other side wrote nonsense. */
int ring_push(struct ring *r, const void *record); /* does not ring the doorbell */
int ring_pop(struct ring *r, void *record);
void ring_notify(struct ring *r); /* producer: after one or more pushes */
/* Consumer: wait until there is a record, the doorbell was rung by someone else (a watcher that
 * noticed a death) with *stop set, or the time is over. True when there is a record. */
bool ring_wait(struct ring *r, const _Atomic bool *stop, unsigned spin_us, int timeout_ms);

#endif
