/* The queue of requests that wait for a slot. The next one is
 *   - one that had a slot before: suspended ones, and those whose answer another worker began, in
 *     order;
 *   - else an interactive one before batch ones;
 *   - of requests alike in this, the one that keeps its turn (request_queue_keep_turn);
 *   - else one of the process with the fewest running requests; of its requests, one of the client
 *     with the fewest running; of the client's, the oldest. Where these counts are equal, processes
 *     and clients take turns: each goes behind the others when its count changes.
 *
 * A process with many requests does not hold up other processes, nor a client with many other
 * clients of its process. A process gains nothing by naming many clients. No client starves: one
 * that has nothing running waits at most for one request of each client that came before it.
 *
 * A process or client has a share while it has requests, waiting or running. Each request brings
 * the memory for two shares, so the queue allocates nothing.
 *
 * Operations take constant or logarithmic time, except that they walk over the requests that had a
 * slot and those that are set aside.
 *
 * Threads: the engine's alone. */
#ifndef MOED_WORKER_SERVE_QUEUE_H
#define MOED_WORKER_SERVE_QUEUE_H

#include "request.h"
#include "turn_heap.h"

enum { QUEUE_PRIORITIES = PRIORITY_BATCH + 1, QUEUE_BUCKETS = 1024 };

struct request_lane { /* in order of arrival; linked by request.place.lane_next */
    struct request *first, **end;
};

/* Of a process, or of one of its clients. */
struct queue_share {
    struct queue_share *next; /* in its bucket */
    struct queue_share *of;   /* a client's: its process's; NULL: it is a process's */
    uint64_t number;
    uint32_t holders; /* a client's: its requests, a process's: its clients */
    uint32_t running; /* requests */
    /* In the heap of `of`, or of the queue, while requests of this priority are ready. */
    struct turn_node nodes[QUEUE_PRIORITIES];
    struct turn_heap clients[QUEUE_PRIORITIES];  /* a process's */
    struct request_lane ready[QUEUE_PRIORITIES]; /* a client's */
};

struct request_queue {
    struct request *first, **end; /* all; linked by request.next */
    uint32_t n;
    struct request *aside; /* the last one that was set aside; linked by request.place.lane_next */
    /* the module's */
    struct request *keeps_turn[QUEUE_PRIORITIES];
    struct turn_heap processes[QUEUE_PRIORITIES];
    uint64_t n_arrived, n_turns, seed;
    struct queue_share *buckets[QUEUE_BUCKETS];
};

/* What a request brings: of r->place.spare. NULL: no memory. */
struct queue_share *queue_shares_new(void);
void queue_shares_free(struct queue_share *list); /* takes NULL */

void request_queue_init(struct request_queue *q);

/* Behind all, or behind those that had a slot before where r had one in another worker. */
void request_queue_append(struct request_queue *q, struct request *r);
/* For a request that had a slot here: it comes first of all. */
void request_queue_push_front(struct request_queue *q, struct request *r);
void request_queue_remove(struct request_queue *q, struct request *r); /* r is in q */

/* r, which was in q once and is not now, has a slot from now on; it has none any more. */
void request_queue_start(struct request_queue *q, struct request *r);
void request_queue_stop(struct request_queue *q, struct request *r);
/* r, which was in q once, neither waits nor has a slot, and will not again. */
void request_queue_forget(struct request_queue *q, struct request *r);

/* The request that gets the next slot; it stays in the queue. NULL: there is none but those that
 * are set aside. */
struct request *request_queue_next(const struct request_queue *q);
/* r, which is the next one, comes before all others of its priority until it leaves q. For a
 * request that waits for pages: where later requests of its client overtake it, they do not use up
 * the client's turn, and no other client's request takes the pages. One request of a priority keeps
 * its turn; while it does, the call has no effect on others. */
void request_queue_keep_turn(struct request_queue *q, struct request *r);
/* Others come before r, which is in q, until request_queue_look_again. */
void request_queue_set_aside(struct request_queue *q, struct request *r);
/* For all that are set aside, but those that still wait for another's prompt. */
void request_queue_look_again(struct request_queue *q);

#endif
