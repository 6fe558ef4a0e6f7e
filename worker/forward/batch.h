/* One row of a batch: a token of a request, and its position. */
#ifndef MOED_WORKER_FORWARD_BATCH_H
#define MOED_WORKER_FORWARD_BATCH_H

#include "recording.h"

#include <stdint.h>

struct batch_token {
    uint32_t token;
    uint32_t slot; /* of the KV cache */
    uint64_t
        request; /* counted since the engine's start; the predictors tell requests apart by it */
    /* from 0; all earlier positions of the slot are filled, or come earlier in this batch */
    uint32_t position;
    struct recording *recording; /* of the request, begun; NULL: not recorded */
    uint8_t *state; /* where the slot's state after this row is copied; NULL: nowhere */
};

#endif
