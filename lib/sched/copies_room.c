/* Room for the copy engine's next segment: what is evicted, and what waits; see copies_internal.h. */
#include "copies_internal.h"

/* How long a load waits for others to be consumed before it takes what the policy keeps. */
#define SPARE_NS 2000000u
/* What an earlier policy has left goes so many segments at a time: the owner has to do something with each. */
enum { TIDY_AT_ONCE = 4 };

void copies_evict(struct sched_copies *c, uint32_t layer, uint32_t expert)
{
    struct copies_expert *x = copies_expert_at(c, layer, expert);
    uint32_t segment = --x->resident;
    copies_clear_predicted(c, layer, expert, 1u << segment);
    if (x->transient)
        x->transient--;
    if (x->used > segment)
        x->used = (uint8_t)segment;
    else
        c->counts.wasted_bytes += c->segment_bytes[layer];
    c->counts.evictions++;
    c->owner.evict(c->owner.arg, layer, expert, segment);
    sched_cache_resident(c->policy, layer, expert, x->resident);
}

void copies_settle(struct sched_copies *c, uint32_t layer, uint32_t expert)
{
    struct copies_expert *x = copies_expert_at(c, layer, expert);
    if (x->pins || x->queued || x->filling)
        return;
    while (x->transient)
        copies_evict(c, layer, expert);
}

bool sched_copies_shorten(struct sched_copies *c, uint32_t layer, uint32_t expert, uint32_t keep)
{
    struct copies_expert *x = copies_expert_at(c, layer, expert);
    if (x->resident > keep && (x->pins || x->filling))
        return false;
    while (x->resident > keep)
        copies_evict(c, layer, expert);
    return true;
}

struct blocked_by {
    const struct sched_copies *copies;
    bool
        wanted; /* spare what a load in the queue wants, and what the layer under way activated, too */
    uint32_t layer, expert; /* and what the room is for */
};

static bool blocked(void *arg, uint32_t layer, uint32_t expert)
{
    const struct blocked_by *b = arg;
    const struct copies_expert *x = copies_expert_at(b->copies, layer, expert);
    bool in_use =
        x->user_place && b->copies->queues[x->user] && b->copies->places[x->user] <= x->user_place;
    return x->pins || x->filling || x->resident == 0 || (b->wanted && (x->queued || in_use)) ||
           (layer == b->layer && expert == b->expert);
}

static bool evict_for(struct sched_copies *c, uint32_t layer, uint32_t expert, bool demanded,
                      double probability, bool spare_wanted)
{
    struct blocked_by b = {c, spare_wanted, layer, expert};
    uint32_t victim_layer, victim_expert;
    if (!sched_cache_victim(c->policy, layer, expert, demanded, probability, blocked, &b,
                            &victim_layer, &victim_expert))
        return false;
    /* A policy's mistake must not take down what it advises. */
    if (victim_layer >= c->shape.n_layers || victim_expert >= c->shape.n_experts ||
        blocked(&b, victim_layer, victim_expert))
        return false;
    copies_evict(c, victim_layer, victim_expert);
    return true;
}

struct tidy {
    struct blocked_by by;
    bool met; /* something that is in use, or is to be: it may have to go later */
};

static bool in_use_or_awaited(void *arg, uint32_t layer, uint32_t expert)
{
    struct tidy *t = arg;
    const struct copies_expert *x = copies_expert_at(t->by.copies, layer, expert);
    bool stays = x->predicted || blocked(&t->by, layer, expert);
    t->met |= stays && x->resident;
    return stays;
}

/* What the policy would give up for the first prediction that comes: none of those that it wants. One for whom there is to
 * be room never goes itself, so it is asked for two. */
static bool left_over(struct sched_copies *c, struct tidy *t, uint32_t *layer, uint32_t *expert)
{
    uint32_t any = 0;
    while (any + 1 < c->shape.n_layers && !c->layer_segments[any])
        any++;
    for (uint32_t i = 0; i < 2; i++)
        if (sched_cache_victim(c->policy, any, i, false, 0, in_use_or_awaited, t, layer, expert))
            return *layer < c->shape.n_layers && *expert < c->shape.n_experts &&
                   !in_use_or_awaited(t, *layer, *expert);
    return false;
}

void copies_tidy(struct sched_copies *c)
{
    for (int i = 0; i < TIDY_AT_ONCE; i++) {
        struct tidy t = {{c, true, UINT32_MAX, UINT32_MAX}, false};
        uint32_t layer, expert;
        if (!left_over(c, &t, &layer, &expert)) {
            c->tidying = t.met;
            return;
        }
        copies_evict(c, layer, expert);
    }
}

/* Some load that was served will be consumed, and gives back slots then; not of this expert itself. */
static bool room_will_return(const struct sched_copies *c, uint32_t layer, uint32_t expert)
{
    for (uint32_t i = 0; i < COPIES_MAX_ASKERS; i++) {
        struct cache_queue *q = c->queues[i];
        for (uint64_t n = q ? q->consumed + 1 : 1; q && n <= q->served; n++) {
            const struct cache_load *l = cache_queue_load(q, n);
            if (copies_expert_at(c, l->layer, l->expert)->transient &&
                (l->layer != layer || l->expert != expert))
                return true;
        }
    }
    return false;
}

static uint32_t free_slots(const struct sched_copies *c)
{
    return c->owner.free_slots(c->owner.arg);
}

static uint32_t free_soon(const struct sched_copies *c)
{
    return free_slots(c) + c->owner.retired_slots(c->owner.arg);
}

static void reclaim(const struct sched_copies *c)
{
    c->owner.reclaim(c->owner.arg);
}

/* Where the policy does not keep loads, they take turns in the slots that they give back, and what it does keep is
 * spared for them. Not for long: an asker may want them all before it consumes the first. */
static bool should_wait(struct sched_copies *c, uint32_t layer, uint32_t expert, uint64_t now_ns)
{
    if (c->keeps_loads || !room_will_return(c, layer, expert))
        return false;
    if (!c->sparing_since_ns)
        c->sparing_since_ns = now_ns;
    return now_ns - c->sparing_since_ns < SPARE_NS;
}

/* A slot that was retired earlier is free no later than one that is retired now, so nothing more is evicted while one
 * is on its way. */
bool copies_room_for_demand(struct sched_copies *c, uint32_t layer, uint32_t expert,
                            uint64_t now_ns)
{
    if (free_slots(c) == 0)
        reclaim(c);
    if (free_soon(c) == 0 && !should_wait(c, layer, expert, now_ns) &&
        (evict_for(c, layer, expert, true, 0, true) || evict_for(c, layer, expert, true, 0, false)))
        reclaim(c);
    if (free_slots(c) == 0)
        return false;
    c->sparing_since_ns = 0;
    /* The next load's room is made now: the grace of what goes runs while this one is copied. One of what is free now is
     * this load's. */
    while (c->keeps_loads && free_soon(c) - 1 < c->shape.reserve &&
           evict_for(c, layer, expert, true, 0, true))
        ;
    return true;
}

/* What is given up while a layer is computed comes back when that is over, and the link would be idle until then. So half of what
 * is kept free for loads may be used while as much is on its way back, by what will more likely than not be asked for
 * itself. (By any guess: policies with bad ones lose up to a tenth, for their loads wait.) */
bool copies_room_for_prefetch(struct sched_copies *c, uint32_t layer, uint32_t expert,
                              double probability)
{
    uint32_t reserve = c->shape.reserve;
    if (free_slots(c) <= reserve)
        reclaim(c);
    if (free_soon(c) <= reserve && evict_for(c, layer, expert, false, probability, true))
        reclaim(c);
    uint32_t least = probability >= 0.5 ? reserve / 2 : reserve;
    return free_soon(c) > reserve && free_slots(c) > least;
}
