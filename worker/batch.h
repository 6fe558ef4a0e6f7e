/* One row of a batch: a token of a request, and where it stands. */
#ifndef MOED_WORKER_BATCH_H
#define MOED_WORKER_BATCH_H

#include "recording.h"

#include <stdint.h>

struct batch_token {
    uint32_t token;
    uint32_t slot;    /* of the KV cache */
    uint64_t request; /* numbered since the engine's start: for who predicts */
    /* 0-based; all earlier positions of the slot are filled, or in this batch before */
    uint32_t position;
    struct recording *recording; /* of the request, begun; NULL: nobody asked for it */
};

#endif
