/* libmoed: the worker's messages as the events that the program gets. */
#ifndef MOED_CLIENT_EVENT_H
#define MOED_CLIENT_EVENT_H

#include "client/include/moed.h"

#include "session.pb-c.h"

/* An event, and what it points to. */
struct event_box {
    struct moed_event event;
    struct moed_result result;
    struct moed_routing routing;
    struct moed_progress progress;
};

/* Fills box->event from a message, which must live as long as the event; NULL: the end of a request
 * (box->result). top: most probable tokens at each place; logprobs: a generation's tokens have
 * log-probabilities. */
void event_fill(struct event_box *box, const Moed__V1__FromWorker *body, bool logprobs, size_t top);
/* Sets box->result but for seed and resumed. generates: of a generation. */
void event_fill_result(struct event_box *box, const Moed__V1__Done *done, bool generates);

#endif
