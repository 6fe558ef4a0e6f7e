/* Turns; see turns.h. */
#include "client/http/server/turns.h"

enum error_code turns_start(struct turns *t, struct loop *loop, const char *name, struct error *e)
{
    *t = (struct turns){.end = &t->first};
    return jobs_start(&t->queue, loop, name, e);
}

/* What points at the client's oldest in its bucket, or would. */
static struct turn **find(const struct turns *t, uint64_t client)
{
    struct turn **link = (struct turn **)&t->buckets[client % TURNS_BUCKETS];
    while (*link && (*link)->client != client)
        link = &(*link)->in_bucket;
    return link;
}

static void line_up(struct turns *t, struct turn *turn, struct turn **at)
{
    turn->next = *at;
    turn->link = at;
    *at = turn;
    if (turn->next)
        turn->next->link = &turn->next;
    else
        t->end = &turn->next;
}

static void leave_line(struct turns *t, const struct turn *turn)
{
    *turn->link = turn->next;
    if (turn->next)
        turn->next->link = turn->link;
    else
        t->end = turn->link;
}

static void append(struct turns *t, struct turn *turn)
{
    struct turn **bucket = find(t, turn->client), *oldest = *bucket;
    turn->waits = true;
    turn->after = turn->before = NULL;
    if (oldest) {
        turn->before = oldest->last;
        oldest->last->after = turn;
        oldest->last = turn;
        oldest->waiting++;
        return;
    }
    *bucket = turn;
    turn->in_bucket = NULL;
    turn->last = turn;
    turn->waiting = 1;
    line_up(t, turn, t->end);
}

/* The client's next one stands for it: behind the other clients where it had its turn, else in the
 * same place. */
static void remove_oldest(struct turns *t, struct turn *turn, bool had_turn)
{
    struct turn **bucket = find(t, turn->client), *next = turn->after;
    turn->waits = false;
    leave_line(t, turn);
    if (!next) {
        *bucket = turn->in_bucket;
        return;
    }
    next->before = NULL;
    next->last = turn->last;
    next->waiting = turn->waiting - 1;
    next->in_bucket = turn->in_bucket;
    *bucket = next;
    line_up(t, next, had_turn ? t->end : turn->link);
}

static void remove_waiting(struct turns *t, struct turn *turn)
{
    struct turn *oldest = *find(t, turn->client);
    if (turn == oldest) {
        remove_oldest(t, turn, false);
        return;
    }
    turn->waits = false;
    oldest->waiting--;
    turn->before->after = turn->after;
    if (turn->after)
        turn->after->before = turn->before;
    else
        oldest->last = turn->before;
}

static void begin_next(struct turns *t)
{
    struct turn *turn = t->first;
    if (t->running || t->stopping || !turn)
        return;
    remove_oldest(t, turn, true);
    t->running = turn;
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
    append(t, turn);
    t->count++;
    begin_next(t);
}

bool turns_withdraw(struct turns *t, struct turn *turn)
{
    bool posted = t->running == turn;
    if (posted ? !jobs_withdraw(&t->queue, &turn->job) : !turn->waits)
        return false;
    if (posted)
        t->running = NULL;
    else
        remove_waiting(t, turn);
    t->count--;
    begin_next(t);
    return true;
}

unsigned turns_of(const struct turns *t, uint64_t client)
{
    const struct turn *oldest = *find(t, client);
    return (oldest ? oldest->waiting : 0) + (t->running && t->running->client == client);
}

void turns_stop(struct turns *t)
{
    t->stopping = true;
    jobs_stop(&t->queue);
    while (t->first) {
        struct turn *turn = t->first;
        remove_oldest(t, turn, true);
        t->count--;
        turn->done(turn);
    }
}
