/* A doorbell in shared memory: a 32-bit futex word that producers increment and one consumer waits
 * on.
 *
 * Protocol (modelled in tests/model/doorbell.pml): the consumer reads the word, looks for work,
 * announces that it will sleep, looks again, and sleeps on the value that it read. A producer
 * publishes its work, increments the word, and wakes the consumer only if that has announced its
 * sleep. */
#ifndef MOED_IPC_DOORBELL_H
#define MOED_IPC_DOORBELL_H

#include "base/spinner.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct doorbell {
    _Alignas(64) _Atomic uint32_t count; /* incremented by any producer */
    _Atomic uint32_t sleeping;           /* written by the consumer: 1 while it may sleep */
    uint8_t pad[56];
};
_Static_assert(sizeof(struct doorbell) == 64, "shared layout");

void doorbell_ring(struct doorbell *d);

/* Wait until ready(arg) is true: spin as the spinner says (NULL: not at all), then sleep; at most
 * timeout_ms (-1: no limit). Returns ready's last answer. Handles spurious wake-ups. */
bool doorbell_wait(struct doorbell *d, bool (*ready)(void *arg), void *arg, struct spinner *spinner,
                   int timeout_ms);

#endif
