/* How requests leave their slot or the queue, and lose their slot when pages are short; see
 * engine_internal.h. */
#include "engine_internal.h"

void engine_leave_queue(struct engine *g, struct request *r)
{
    request_queue_remove(&g->waiting, r);
    pthread_mutex_lock(&g->lock);
    g->n_queued--;
    pthread_mutex_unlock(&g->lock);
}

void engine_leave_slot(struct engine *g, struct request *r)
{
    struct request **p = &g->running;
    while (*p != r)
        p = &(*p)->next;
    *p = r->next;
    request_queue_stop(&g->waiting, r);
    engine_close_pages(g, r);
    g->slot_used[r->slot] = false;
    g->n_slots_used--;
    r->slot = -1;
}

void engine_suspend(struct engine *g, struct request *r)
{
    engine_send_unsent(g, r);
    engine_leave_slot(g, r);
    r->n_prefill = (uint32_t)r->tokens.count;
    r->n_past = 0;
    r->hidden_begin = r->n_hidden = 0; /* rows that were not sent are computed again */
    r->n_pages_lost++;
    request_queue_push_front(&g->waiting, r);
    pthread_mutex_lock(&g->lock);
    g->n_queued++;
    pthread_mutex_unlock(&g->lock);
    counter_add(g->counters.suspended, 1);
    /* perhaps no step goes on, and nothing tells when another worker frees pages: look again */
    g->waits_for_pages = true;
}

/* The request that started last, of those that can begin again. */
static struct request *last_started(const struct engine *g)
{
    struct request *last = NULL;
    for (struct request *r = g->running; r; r = r->next)
        if (r->shares_pages && (!last || r->serial > last->serial))
            last = r;
    return last;
}

bool engine_need_pages(struct engine *g, struct request *r, uint32_t positions)
{
    while (!engine_extend_pages(g, r, positions)) {
        struct request *victim = last_started(g);
        /* alone, too: a device's cache that shrinks has its size once r's pages are released */
        engine_suspend(g, victim ? victim : r);
        if (!victim || victim == r)
            return false;
    }
    return true;
}
