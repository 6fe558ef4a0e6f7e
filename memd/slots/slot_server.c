/* The frame of the expert cache and of the host tier; see slot_server.h. */
#include "slot_server.h"

#include <string.h>

/* Of one worker, before the next one's turn: a worker that writes as fast as the thread reads stops
 * nobody. Its doorbell has rung already for the records after them, so the thread must not sleep
 * before the next turn. */
enum { RECORDS_AT_ONCE = 128 };

void slot_server_init(struct slot_server *s, const struct slot_owner *owner)
{
    *s = (struct slot_server){.owner = *owner};
    pthread_mutex_init(&s->lock, NULL);
}

enum error_code slot_server_start(struct slot_server *s, const char *thread, void *(*main)(void *),
                                  struct error *e)
{
    int failed = pthread_create(&s->thread, NULL, main, s->owner.arg);
    if (failed)
        return error_set(e, ERROR_MEMORY, "cannot start the thread %s: %s", thread,
                         strerror(failed));
    s->has_thread = true;
    return ERROR_OK;
}

void slot_server_stop(struct slot_server *s)
{
    if (!s->has_thread)
        return;
    pthread_mutex_lock(&s->lock);
    s->stop = true;
    pthread_mutex_unlock(&s->lock);
    doorbell_ring(&s->bell);
    pthread_join(s->thread, NULL);
    s->has_thread = false;
    for (int i = 0; i < CACHE_MAX_WORKERS; i++)
        s->workers[i].leaving = s->workers[i].present;
    slot_server_forget_leaving(s);
}

void slot_server_fini(struct slot_server *s)
{
    cache_slots_fini(&s->slots);
    pthread_mutex_destroy(&s->lock);
}

/* ---- Workers come and go ---- */

static bool serves_host(const struct slot_server *s)
{
    return s->owner.asks == CACHE_FETCH;
}

static struct ring *ring_of(const struct slot_server *s, struct cache_worker *w)
{
    return serves_host(s) ? &w->channel.fetches : &w->channel.requests;
}

enum error_code slot_server_add_worker(struct slot_server *s, uint64_t key,
                                       const struct shm *region, struct error *e)
{
    struct cache_worker new;
    enum error_code code = cache_worker_open(&new, key, region, s->owner.pool_generation, e);
    if (code)
        return code;
    struct cache_channel_header *h = new.channel.header;
    pthread_mutex_lock(&s->lock);
    new.reader = cache_slots_add_reader(&s->slots, serves_host(s) ? &h->host_epoch : &h->epoch);
    if (new.reader >= 0) {
        s->workers[new.reader] = new;
        if (s->owner.joined)
            s->owner.joined(s->owner.arg, (uint32_t) new.reader);
    }
    pthread_mutex_unlock(&s->lock);
    if (new.reader < 0) {
        cache_worker_close(&new);
        return error_set(e, ERROR_LIMIT, "the %s serves %d workers already", s->owner.name,
                         CACHE_MAX_WORKERS);
    }
    doorbell_ring(&s->bell);
    return ERROR_OK;
}

void slot_server_remove_worker(struct slot_server *s, uint64_t key)
{
    pthread_mutex_lock(&s->lock);
    for (int i = 0; i < CACHE_MAX_WORKERS; i++)
        if (s->workers[i].present && s->workers[i].key == key)
            s->workers[i].leaving = true;
    pthread_mutex_unlock(&s->lock);
    doorbell_ring(&s->bell);
}

void slot_server_forget_leaving(struct slot_server *s)
{
    for (uint32_t i = 0; i < CACHE_MAX_WORKERS; i++) {
        struct cache_worker *w = &s->workers[i];
        if (!w->present || !w->leaving)
            continue;
        s->owner.leaving(s->owner.arg, i);
        cache_slots_remove_reader(&s->slots, w->reader);
        cache_worker_close(w);
        if (s->owner.left)
            s->owner.left(s->owner.arg);
    }
}

static struct cache_worker *newly_broken(struct slot_server *s)
{
    for (int i = 0; i < CACHE_MAX_WORKERS; i++)
        if (s->workers[i].present && s->workers[i].broken && !s->workers[i].reported)
            return &s->workers[i];
    return NULL;
}

void slot_server_report_broken(struct slot_server *s)
{
    struct cache_worker *w;
    while ((w = newly_broken(s))) {
        uint64_t key = w->key;
        w->reported = true;
        if (!s->owner.broken)
            continue;
        pthread_mutex_unlock(&s->lock); /* `broken` may call back in */
        s->owner.broken(s->owner.broken_arg, key);
        pthread_mutex_lock(&s->lock);
    }
}

/* ---- What workers write ---- */

struct cache_worker *slot_server_next(struct slot_server *s, uint32_t *i)
{
    for (; *i < CACHE_MAX_WORKERS; ++*i)
        if (s->workers[*i].present && !s->workers[*i].broken)
            return &s->workers[*i];
    return NULL;
}

/* True: there may be more. */
static bool take_records_of(struct slot_server *s, uint32_t i)
{
    struct cache_worker *w = &s->workers[i];
    const struct slot_owner *o = &s->owner;
    struct cache_record r;
    const char *what = NULL;
    int n = 0;
    while (n < RECORDS_AT_ONCE &&
           cache_worker_take(w, ring_of(s, w), o->asks, o->slabs, o->n_layers, &r, &what)) {
        o->take(o->arg, i, &r);
        n++;
    }
    if (what) {
        cache_worker_break(w, what);
        o->forget(o->arg, i);
    }
    return n == RECORDS_AT_ONCE;
}

void slot_server_take_records(struct slot_server *s)
{
    struct cache_worker *w;
    s->records_left = false;
    for (uint32_t i = 0; (w = slot_server_next(s, &i)); i++)
        if (!w->leaving && take_records_of(s, i))
            s->records_left = true;
}

/* ---- Waiting ---- */

void slot_server_watch(struct slot_server *s)
{
    struct cache_worker *w;
    cache_wait_begin(&s->wait);
    cache_wait_watch(&s->wait, &s->bell);
    for (uint32_t i = 0; (w = slot_server_next(s, &i)); i++)
        cache_wait_watch(&s->wait, &ring_of(s, w)->header->doorbell);
}

void slot_server_sleep(struct slot_server *s, uint64_t timeout_ns)
{
    pthread_mutex_unlock(&s->lock);
    cache_wait_sleep(&s->wait, s->records_left ? 0 : timeout_ns);
    pthread_mutex_lock(&s->lock);
}

void slot_server_ring_workers(struct slot_server *s)
{
    for (int i = 0; i < CACHE_MAX_WORKERS; i++)
        if (s->workers[i].present)
            doorbell_ring(&s->workers[i].channel.header->arrivals);
}
