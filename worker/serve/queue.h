/* The queue of requests that wait for a slot: in order of arrival, except that
 *   - requests that had a slot before come first: suspended ones, and those whose answer another
 *     worker began;
 *   - interactive requests come before batch ones;
 *   - of requests alike in this, one whose submitter has fewest requests running comes first, so
 *     that one frontend with many requests does not hold up the others.
 *
 * Threads: the engine's alone. */
#ifndef MOED_WORKER_SERVE_QUEUE_H
#define MOED_WORKER_SERVE_QUEUE_H

#include "request.h"

struct request_queue {
    struct request *first, **end; /* linked by request.next */
    uint32_t n;
};

static inline void request_queue_init(struct request_queue *q)
{
    *q = (struct request_queue){.end = &q->first};
}

/* Behind all, or behind those that had a slot before where r had one in another worker. */
void request_queue_append(struct request_queue *q, struct request *r);
/* For a request that had a slot here: it comes first of all. */
void request_queue_push_front(struct request_queue *q, struct request *r);
void request_queue_remove(struct request_queue *q, struct request *r); /* r is in q */

/* The request that gets the next slot; it stays in the queue. NULL: there is none but those that
 * wait for another's prompt, or are passed over. running: the requests with a slot, linked by next.
 */
struct request *request_queue_next(const struct request_queue *q, const struct request *running);

#endif
