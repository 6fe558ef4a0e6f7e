/* What the stand-in worker (stand_in_worker.h) does with the messages of a client. */
#ifndef MOED_TESTS_STAND_IN_REQUESTS_H
#define MOED_TESTS_STAND_IN_REQUESTS_H

#include <stddef.h>
#include <stdint.h>

/* Of a channel whose argument is a struct peer; data NULL: the client has gone. */
void stand_in_receive(void *arg, const uint8_t *data, size_t len);

#endif
