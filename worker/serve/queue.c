/* The queue of waiting requests; see queue.h. */
#include "queue.h"

/* In this worker, or in another one that began its answer. Such requests stand before all others.
 */
static bool had_slot(const struct request *r)
{
    return r->n_pages_lost || r->n_generated;
}

static void insert(struct request_queue *q, struct request *r, struct request **at)
{
    r->next = *at;
    *at = r;
    if (!r->next)
        q->end = &r->next;
    q->n++;
}

void request_queue_append(struct request_queue *q, struct request *r)
{
    struct request **at = q->end;
    if (had_slot(r))
        for (at = &q->first; *at && had_slot(*at);)
            at = &(*at)->next;
    insert(q, r, at);
}

void request_queue_push_front(struct request_queue *q, struct request *r)
{
    insert(q, r, &q->first);
}

void request_queue_remove(struct request_queue *q, struct request *r)
{
    struct request **p = &q->first;
    while (*p != r)
        p = &(*p)->next;
    *p = r->next;
    if (!*p)
        q->end = p;
    q->n--;
}

static uint32_t running_of(const struct request *running, uint64_t submitter)
{
    uint32_t n = 0;
    for (; running; running = running->next)
        n += running->submitter == submitter;
    return n;
}

struct request *request_queue_next(const struct request_queue *q, const struct request *running)
{
    struct request *best = NULL;
    uint64_t least = UINT64_MAX;
    for (struct request *r = q->first; r; r = r->next) {
        if (r->waits_for || r->passed_over)
            continue;
        if (had_slot(r))
            return r;
        uint64_t rank = (uint64_t)(r->priority == PRIORITY_BATCH) << 32;
        if (rank < least)
            rank += running_of(running, r->submitter);
        if (rank < least) {
            best = r;
            least = rank;
        }
        if (least == 0)
            break;
    }
    return best;
}
