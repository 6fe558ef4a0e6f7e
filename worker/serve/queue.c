/* The queue of waiting requests; see queue.h.
 *
 * Invariants:
 * 1. A request that had no slot before and is not set aside stands in the lane of its client's
 *    share and its priority.
 * 2. A client's share is in its process's heap of a priority where that lane is not empty; a
 *    process's share is in the queue's heap where that heap is not empty. */
#include "queue.h"

#include "base/checksum.h"
#include "base/clock.h"

#include <stdlib.h>
#include <string.h>

/* ---- Shares ---- */

void queue_shares_free(struct queue_share *list)
{
    while (list) {
        struct queue_share *next = list->next;
        free(list);
        list = next;
    }
}

struct queue_share *queue_shares_new(void)
{
    struct queue_share *process = calloc(1, sizeof *process), *client = calloc(1, sizeof *client);
    if (client)
        client->next = process;
    if (process && client)
        return client;
    queue_shares_free(client ? client : process);
    return NULL;
}

static struct queue_share **bucket_of(struct request_queue *q, const struct queue_share *process,
                                      uint64_t number)
{
    uint64_t key[2] = {process ? process->number : 0, number};
    uint64_t hash = checksum64(q->seed + (process != NULL), key, sizeof key);
    return &q->buckets[hash % QUEUE_BUCKETS];
}

static struct turn_heap *heap_of(struct request_queue *q, const struct queue_share *s, int priority)
{
    return s->of ? &s->of->clients[priority] : &q->processes[priority];
}

static struct queue_share *find_share(struct request_queue *q, struct queue_share *process,
                                      uint64_t number)
{
    struct queue_share *s = *bucket_of(q, process, number);
    while (s && (s->of != process || s->number != number))
        s = s->next;
    return s;
}

static void set_turn(struct request_queue *q, struct queue_share *s)
{
    uint64_t turn = ++q->n_turns;
    for (int i = 0; i < QUEUE_PRIORITIES; i++) {
        struct turn_node *n = &s->nodes[i];
        bool in = n->in;
        if (in)
            turn_heap_leave(heap_of(q, s, i), n);
        n->running = s->running;
        n->turn = turn;
        if (in)
            turn_heap_enter(heap_of(q, s, i), n);
    }
}

/* The memory is the request's. */
static struct queue_share *add_share(struct request_queue *q, struct request *r,
                                     struct queue_share *process, uint64_t number)
{
    struct queue_share **bucket = bucket_of(q, process, number), *s = r->place.spare;
    r->place.spare = s->next;
    *s = (struct queue_share){.next = *bucket, .of = process, .number = number};
    *bucket = s;
    for (int i = 0; i < QUEUE_PRIORITIES; i++) {
        s->nodes[i].owner = s;
        s->ready[i].end = &s->ready[i].first;
    }
    set_turn(q, s);
    if (process)
        process->holders++;
    return s;
}

static void hold_share(struct request_queue *q, struct request *r)
{
    if (r->place.share)
        return;
    struct queue_share *process = find_share(q, NULL, r->process);
    if (!process)
        process = add_share(q, r, NULL, r->process);
    struct queue_share *client = find_share(q, process, r->client);
    if (!client)
        client = add_share(q, r, process, r->client);
    client->holders++;
    r->place.share = client;
}

/* r takes the memory. */
static void release_share(struct request_queue *q, struct request *r, struct queue_share *s)
{
    if (--s->holders)
        return;
    struct queue_share **link = bucket_of(q, s->of, s->number), *process = s->of;
    while (*link != s)
        link = &(*link)->next;
    *link = s->next;
    s->next = r->place.spare;
    r->place.spare = s;
    if (process)
        release_share(q, r, process);
}

/* ---- Lanes ---- */

static void link_in(struct request **at, struct request *r)
{
    r->place.lane_next = *at;
    r->place.lane_link = at;
    if (*at)
        (*at)->place.lane_link = &r->place.lane_next;
    *at = r;
}

static void link_out(struct request *r)
{
    *r->place.lane_link = r->place.lane_next;
    if (r->place.lane_next)
        r->place.lane_next->place.lane_link = r->place.lane_link;
}

/* The share of one with ready requests, and its process's. */
static void make_ready(struct request_queue *q, struct queue_share *s, int priority)
{
    for (; s && !s->nodes[priority].in; s = s->of)
        turn_heap_enter(heap_of(q, s, priority), &s->nodes[priority]);
}

static void make_unready(struct request_queue *q, struct queue_share *s, int priority)
{
    turn_heap_leave(heap_of(q, s, priority), &s->nodes[priority]);
    if (s->of && !s->of->clients[priority].first)
        make_unready(q, s->of, priority);
}

static void enter_lane(struct request_queue *q, struct request *r, struct request **at)
{
    struct request_lane *lane = &r->place.share->ready[r->priority];
    link_in(at, r);
    if (!r->place.lane_next)
        lane->end = &r->place.lane_next;
    make_ready(q, r->place.share, r->priority);
}

static void leave_lane(struct request_queue *q, struct request *r)
{
    struct request_lane *lane = &r->place.share->ready[r->priority];
    link_out(r);
    if (!r->place.lane_next)
        lane->end = r->place.lane_link;
    if (!lane->first)
        make_unready(q, r->place.share, r->priority);
}

/* ---- The queue ---- */

void request_queue_init(struct request_queue *q)
{
    memset(q, 0, sizeof *q);
    q->end = &q->first;
    q->seed = clock_ns(); /* a frontend must not choose numbers of one bucket */
}

/* In this worker, or in another one that began its answer. Such requests stand before all others.
 */
static bool had_slot(const struct request *r)
{
    return r->n_pages_lost || r->n_generated;
}

static void insert(struct request_queue *q, struct request *r, struct request **at)
{
    hold_share(q, r);
    r->place.arrival = ++q->n_arrived;
    r->place.link = at;
    r->next = *at;
    *at = r;
    if (r->next)
        r->next->place.link = &r->next;
    else
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
    if (!had_slot(r))
        enter_lane(q, r, r->place.share->ready[r->priority].end);
}

void request_queue_push_front(struct request_queue *q, struct request *r)
{
    insert(q, r, &q->first);
}

void request_queue_remove(struct request_queue *q, struct request *r)
{
    if (r->place.aside)
        link_out(r);
    else if (!had_slot(r))
        leave_lane(q, r);
    r->place.aside = false;
    if (q->keeps_turn[r->priority] == r)
        q->keeps_turn[r->priority] = NULL;
    *r->place.link = r->next;
    if (r->next)
        r->next->place.link = r->place.link;
    else
        q->end = r->place.link;
    q->n--;
}

static void count_running(struct request_queue *q, struct request *r, int more)
{
    for (struct queue_share *s = r->place.share; s; s = s->of) {
        s->running += (uint32_t)more;
        set_turn(q, s);
    }
}

void request_queue_start(struct request_queue *q, struct request *r)
{
    count_running(q, r, 1);
}

void request_queue_stop(struct request_queue *q, struct request *r)
{
    count_running(q, r, -1);
}

void request_queue_forget(struct request_queue *q, struct request *r)
{
    release_share(q, r, r->place.share);
    r->place.share = NULL;
}

struct request *request_queue_next(const struct request_queue *q)
{
    for (struct request *r = q->first; r && had_slot(r); r = r->next)
        if (!r->place.aside)
            return r;
    for (int i = 0; i < QUEUE_PRIORITIES; i++) {
        struct request *kept = q->keeps_turn[i];
        if (kept && !kept->place.aside)
            return kept;
        if (!q->processes[i].first)
            continue;
        const struct queue_share *process = q->processes[i].first->owner;
        const struct queue_share *client = process->clients[i].first->owner;
        return client->ready[i].first;
    }
    return NULL;
}

void request_queue_keep_turn(struct request_queue *q, struct request *r)
{
    struct request **keeps = &q->keeps_turn[r->priority];
    if (!*keeps && !had_slot(r)) /* these come before all others anyway */
        *keeps = r;
}

void request_queue_set_aside(struct request_queue *q, struct request *r)
{
    if (!had_slot(r))
        leave_lane(q, r);
    r->place.aside = true;
    link_in(&q->aside, r);
}

void request_queue_look_again(struct request_queue *q)
{
    for (struct request *r = q->aside, *next; r; r = next) {
        next = r->place.lane_next;
        if (r->waits_for)
            continue;
        link_out(r);
        r->place.aside = false;
        if (had_slot(r))
            continue;
        /* the last one that was set aside comes first, so r is mostly the oldest of its lane */
        struct request **at = &r->place.share->ready[r->priority].first;
        while (*at && (*at)->place.arrival < r->place.arrival)
            at = &(*at)->place.lane_next;
        enter_lane(q, r, at);
    }
}
