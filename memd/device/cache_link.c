/* The expert cache's copies on the link; see cache_internal.h.
 *
 * The link has a queue (device/link.h), so that it goes on to the next copy without waiting for the
 * engine thread: a thread wakes up some 50 us after an event, which is longer than a copy of a
 * megabyte takes on a fast bus. What is in the queue cannot be overtaken, so it is kept short:
 *
 *     a load that a worker waits for    is queued behind one copy always, and behind up to three
 *                                       while all of them end within LOADS_NS
 *     any other copy                    when the link is idle, or about to be: LEAD_NS
 *
 * So a load waits for one copy at most and for what is queued in its last LEAD_NS. Segments that
 * follow each other in host memory and on the device are one copy while it takes at most BATCH_NS:
 * each copy costs a call, and a gap on the bus.
 *
 * The decisions are those of one copy at a time: the scheduler sees a segment that is queued as one
 * that is there (transfer_scheduler.h). */
#include "cache_internal.h"

#include "base/clock.h"

#include <string.h>

#define LOADS_NS 500000u
#define LEAD_NS  150000u
#define BATCH_NS 100000u
/* A wait that is longer is a sleep, from which a doorbell wakes the thread. */
#define NAP_NS 100000u

_Static_assert((int)DEVICE_LINK_QUEUE *(int)DEVICE_COPY_SIGNALS <= (int)TRANSFER_MAX_UNDER_WAY,
               "the scheduler knows every segment that is queued");

/* ---- What is queued ---- */

/* Whether a copy may be queued now; *loads_only: a load. A measurement times nothing else. */
static bool may_queue(const struct cache *c, bool *loads_only)
{
    *loads_only =
        c->measuring || c->n_queued > 1 || (c->n_queued && device_link_left_ns(c->link) > LEAD_NS);
    return c->n_queued < 2 ||
           (c->n_queued < DEVICE_LINK_QUEUE && device_link_all_left_ns(c->link) < LOADS_NS);
}

static void add_job(struct cache *c, struct cache_batch *b, const struct cache_job *job)
{
    uint64_t bytes = cache_slabs(c, job->what.layer)->segment_bytes;
    b->jobs[b->n++] = *job;
    b->bytes += bytes;
    b->measured_bytes += c->measuring && job->what.reason == COPY_DEMANDED ? bytes : 0;
}

/* Whether the next segment of the batch's last expert may join the batch. If another copy is
 * chosen, it is queued behind the batch, for which there must be a place. */
static bool may_grow(const struct cache *c, const struct cache_batch *b)
{
    const struct cache_job *last = &b->jobs[b->n - 1];
    uint64_t bytes = cache_slabs(c, last->what.layer)->segment_bytes;
    uint32_t most = b->jobs[0].what.reason == COPY_DEMANDED ? DEVICE_LINK_QUEUE : 2;
    return b->n < DEVICE_COPY_SIGNALS && c->n_queued + 1 < most && cache_has_neighbour(c, last) &&
           device_link_copying_ns(c->link, b->bytes + bytes) <= BATCH_NS;
}

/* Adds the jobs that continue the first one. True: *next has begun too, and does not continue them.
 */
static bool grow_batch(struct cache *c, struct cache_batch *b, struct cache_job *next)
{
    bool loads_only = b->jobs[0].what.reason == COPY_DEMANDED;
    uint64_t timeout_ns;
    while (may_grow(c, b) && cache_next_job(c, loads_only, &b->jobs[b->n - 1], next, &timeout_ns)) {
        cache_begin_copy(c, next);
        if (!cache_continues(c, &b->jobs[b->n - 1], next))
            return true;
        add_job(c, b, next);
    }
    return false;
}

/* Changes n_queued by one. Workers see that the link is busy, and since when. */
static void set_queued(struct cache *c, uint32_t n)
{
    struct residency_header *shown = c->residency.base;
    bool was_busy = c->n_queued > 0, another_is_oldest = n < c->n_queued || !was_busy;
    c->n_queued = n;
    if (n && another_is_oldest)
        atomic_store_explicit(&shown->copy_began_ns, clock_ns(), memory_order_relaxed);
    /* odd while any is queued; release: after its beginning */
    atomic_fetch_add_explicit(&shown->copies, was_busy && n ? 2 : 1, memory_order_release);
}

static enum error_code queue_batch(struct cache *c, const struct cache_batch *b, struct error *e)
{
    const struct cache_job *first = &b->jobs[0];
    struct device_copy copy = {.to = device_arena_slot(c->arena, first->slot),
                               .from = first->from,
                               .bytes = b->bytes,
                               .n_signals = c->fills ? b->n : 0};
    for (uint32_t i = 0; i < copy.n_signals; i++)
        copy.signals[i] = (struct device_signal){b->jobs[i].slot, b->jobs[i].flag};
    c->queue[c->n_queued] = *b;
    c->queue[c->n_queued].queued_ns = clock_ns();
    set_queued(c, c->n_queued + 1);
    pthread_mutex_unlock(&c->server.lock); /* a copy of memory that is not pinned takes its time */
    enum error_code code = device_link_queue(c->link, &copy, e);
    pthread_mutex_lock(&c->server.lock);
    return code;
}

enum error_code cache_fill_link(struct cache *c, uint64_t *timeout_ns, struct error *e)
{
    enum error_code code = ERROR_OK;
    struct cache_job job;
    bool loads_only, begun = false;
    *timeout_ns = UINT64_MAX;
    while (!code && (begun || may_queue(c, &loads_only))) {
        if (!begun && !cache_next_job(c, loads_only, NULL, &job, timeout_ns))
            break;
        if (!begun)
            cache_begin_copy(c, &job);
        struct cache_batch batch = {0};
        add_job(c, &batch, &job);
        begun = grow_batch(c, &batch, &job);
        code = queue_batch(c, &batch, e);
    }
    return code;
}

/* ---- Waiting ---- */

static void count_copy(struct cache *c, const struct cache_batch *b, uint64_t busy_ns)
{
    uint64_t now = clock_ns(),
             since = b->queued_ns > c->collected_ns ? b->queued_ns : c->collected_ns;
    c->collected_ns = now;
    if (b->measured_bytes == b->bytes)
        return;
    c->link_bytes += b->bytes - b->measured_bytes;
    c->link_busy_ns += busy_ns;
    if (c->counters.copy_seconds)
        histogram_observe(c->counters.copy_seconds, (double)(now - since) * 1e-9);
}

/* Waits for the oldest copy, without the lock, and ends it. */
static enum error_code collect(struct cache *c, struct error *e)
{
    uint64_t busy_ns = device_link_busy_ns(c->link);
    pthread_mutex_unlock(&c->server.lock);
    enum error_code code = device_link_collect(c->link, e);
    pthread_mutex_lock(&c->server.lock);
    if (code) /* the segments stay in flight for ever: workers reclaim their loads, or end */
        return code;
    struct cache_batch done = c->queue[0];
    memmove(c->queue, c->queue + 1, (c->n_queued - 1) * sizeof *c->queue);
    set_queued(c, c->n_queued - 1);
    count_copy(c, &done, device_link_busy_ns(c->link) - busy_ns);
    for (uint32_t i = 0; i < done.n; i++)
        cache_end_copy(c, &done.jobs[i]);
    return ERROR_OK;
}

enum error_code cache_wait_link(struct cache *c, uint64_t timeout_ns, struct error *e)
{
    uint64_t left_ns = device_link_left_ns(c->link);
    if (c->n_queued && left_ns <= NAP_NS)
        return collect(c, e);
    if (!c->n_queued)
        device_link_rest(c->link);
    else if (timeout_ns > left_ns - NAP_NS / 2)
        timeout_ns = left_ns - NAP_NS / 2;
    slot_server_sleep(&c->server, timeout_ns);
    return ERROR_OK;
}

void cache_drop_queued(struct cache *c)
{
    for (uint32_t i = 0; i < c->n_queued; i++)
        for (uint32_t k = 0; k < c->queue[i].n; k++)
            cache_drop_copy(c, &c->queue[i].jobs[k]);
    c->n_queued = 0;
}
