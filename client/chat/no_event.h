/* The two timeouts of moed_request_next, for programs that go on where no event has come. */
#ifndef MOED_CLIENT_CHAT_NO_EVENT_H
#define MOED_CLIENT_CHAT_NO_EVENT_H

#include "client/include/moed.h"

#include <stdbool.h>

/* The wait was too short. The other timeout, of a deadline for instance, is the request's end. */
static inline bool no_event_yet(const struct moed_error *error)
{
    return error->code == MOED_ERROR_TIMEOUT && error->retry;
}

#endif
