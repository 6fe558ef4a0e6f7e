/* Turns; see turns.h. */
#include "client/http/server/turns.h"

enum error_code turns_start(struct turns *t, struct loop *loop, const char *name, struct error *e)
{
    *t = (struct turns){0};
    return jobs_start(&t->queue, loop, name, e);
}

static void begin_next(struct turns *t)
{
    struct turn *turn = t->waiting;
    if (t->running || t->stopping || !turn)
        return;
    t->waiting = turn->next;
    t->running = turn;
    t->round = turn->round;
    if (turn->begun)
        turn->begun(turn);
    jobs_post(&t->queue, &turn->job);
}

static void on_done(struct job *job)
{
    struct turn *turn = (struct turn *)job;
    struct turns *t = turn->in;
    t->running = NULL;
    t->count--;
    begin_next(t);
    turn->done(turn);
}

void turns_post(struct turns *t, uint64_t client, struct turn *turn)
{
    turn->job.done = on_done;
    turn->in = t;
    turn->client = client;
    turn->round = t->round + 1;
    for (const struct turn *w = t->waiting; w; w = w->next)
        if (w->client == client)
            turn->round = w->round + 1;
    struct turn **link = &t->waiting;
    while (*link && (*link)->round <= turn->round)
        link = &(*link)->next;
    turn->next = *link;
    *link = turn;
    t->count++;
    begin_next(t);
}

/* False: it does not wait. */
static bool remove_waiting(struct turns *t, const struct turn *turn)
{
    struct turn **link = &t->waiting;
    while (*link && *link != turn)
        link = &(*link)->next;
    if (!*link)
        return false;
    *link = turn->next;
    return true;
}

bool turns_withdraw(struct turns *t, struct turn *turn)
{
    bool posted = t->running == turn;
    if (posted ? !jobs_withdraw(&t->queue, &turn->job) : !remove_waiting(t, turn))
        return false;
    t->count--;
    if (posted)
        t->running = NULL;
    begin_next(t);
    return true;
}

unsigned turns_of(const struct turns *t, uint64_t client)
{
    unsigned n = t->running && t->running->client == client;
    for (const struct turn *w = t->waiting; w; w = w->next)
        n += w->client == client;
    return n;
}

void turns_stop(struct turns *t)
{
    t->stopping = true;
    jobs_stop(&t->queue);
    while (t->waiting) {
        struct turn *turn = t->waiting;
        t->waiting = turn->next;
        t->count--;
        turn->done(turn);
    }
}
