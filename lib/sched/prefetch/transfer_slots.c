/* The slot of the next copy: what is evicted for it, and what waits; see transfer_internal.h. */
#include "transfer_internal.h"

/* How long a load waits for other loads to be consumed before it evicts what the policy keeps. */
#define SPARE_NS 2000000u
/* Segments of an earlier policy, or of layers passed, that one call evicts: the owner works on
 * each.
 */
enum { TIDY_AT_ONCE = 4, AHEAD_AT_ONCE = 8 };

void transfer_clear_predicted(struct transfer_scheduler *c, uint32_t layer, uint32_t expert,
                              uint32_t mask)
{
    struct transfer_expert *x = transfer_expert_at(c, layer, expert);
    if (!(x->predicted & mask)) /* nearly always: counting bits is a call without the instruction */
        return;
    c->upcoming[layer % 2] -= (uint32_t)__builtin_popcount(x->predicted & mask);
    x->predicted &= (uint16_t)~mask;
}

void transfer_evict(struct transfer_scheduler *c, uint32_t layer, uint32_t expert)
{
    struct transfer_expert *x = transfer_expert_at(c, layer, expert);
    uint32_t segment = --x->resident;
    transfer_clear_predicted(c, layer, expert, 1u << segment);
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

void transfer_settle(struct transfer_scheduler *c, uint32_t layer, uint32_t expert)
{
    struct transfer_expert *x = transfer_expert_at(c, layer, expert);
    if (x->pins || x->queued || x->filling)
        return;
    while (x->transient)
        transfer_evict(c, layer, expert);
}

bool transfer_scheduler_shorten(struct transfer_scheduler *c, uint32_t layer, uint32_t expert,
                                uint32_t keep)
{
    struct transfer_expert *x = transfer_expert_at(c, layer, expert);
    if (x->resident > keep && (x->pins || x->filling))
        return false;
    while (x->resident > keep)
        transfer_evict(c, layer, expert);
    return true;
}

struct blocked_by {
    const struct transfer_scheduler *transfers;
    bool wanted; /* also spare what a queued load wants and what the layer under way activated */
    uint32_t layer, expert; /* what the slot is for */
};

static bool blocked(void *arg, uint32_t layer, uint32_t expert)
{
    const struct blocked_by *b = arg;
    const struct transfer_expert *x = transfer_expert_at(b->transfers, layer, expert);
    bool in_use = x->user_place && b->transfers->queues[x->user] &&
                  b->transfers->places[x->user] <= x->user_place;
    return x->pins || x->filling || x->resident == 0 || (b->wanted && (x->queued || in_use)) ||
           (layer == b->layer && expert == b->expert);
}

void transfer_scheduler_keep_best(struct transfer_scheduler *c, uint64_t most)
{
    struct blocked_by b = {c, true, UINT32_MAX, UINT32_MAX};
    uint64_t n = 0;
    uint32_t layer, expert;
    for (layer = 0; layer < c->shape.n_layers; layer++)
        for (expert = 0; expert < c->shape.n_experts && c->layer_segments[layer]; expert++)
            n += transfer_expert_at(c, layer, expert)->resident;
    for (; n > most && sched_cache_least(c->policy, blocked, &b, &layer, &expert); n--) {
        transfer_evict(c, layer, expert);
        c->hinting = false; /* as in transfer_free_ahead */
    }
}

static bool evict_for(struct transfer_scheduler *c, uint32_t layer, uint32_t expert, bool demanded,
                      double probability, bool spare_wanted)
{
    struct blocked_by b = {c, spare_wanted, layer, expert};
    uint32_t victim_layer, victim_expert;
    if (!sched_cache_victim(c->policy, layer, expert, demanded, probability, blocked, &b,
                            &victim_layer, &victim_expert))
        return false;
    /* A policy's mistake must not break the scheduler. */
    if (victim_layer >= c->shape.n_layers || victim_expert >= c->shape.n_experts ||
        blocked(&b, victim_layer, victim_expert))
        return false;
    transfer_evict(c, victim_layer, victim_expert);
    return true;
}

struct tidy {
    struct blocked_by by;
    bool met; /* an expert that is or will be in use: it may have to go later */
};

static bool in_use_or_awaited(void *arg, uint32_t layer, uint32_t expert)
{
    struct tidy *t = arg;
    const struct transfer_expert *x = transfer_expert_at(t->by.transfers, layer, expert);
    bool stays = x->predicted || blocked(&t->by, layer, expert);
    t->met |= stays && x->resident;
    return stays;
}

/* What the policy would evict for a prediction: none of those that it wants. The expert that needs
 * the slot is never its own victim, so the policy is asked for two experts. */
static bool left_over(struct transfer_scheduler *c, struct tidy *t, uint32_t *layer,
                      uint32_t *expert)
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

void transfer_tidy(struct transfer_scheduler *c)
{
    for (int i = 0; i < TIDY_AT_ONCE; i++) {
        struct tidy t = {{c, true, UINT32_MAX, UINT32_MAX}, false};
        uint32_t layer, expert;
        if (!left_over(c, &t, &layer, &expert)) {
            c->tidying = t.met;
            return;
        }
        transfer_evict(c, layer, expert);
    }
}

/* True if a served load of another expert will be consumed and then frees slots. */
static bool slots_will_return(const struct transfer_scheduler *c, uint32_t layer, uint32_t expert)
{
    for (uint32_t i = 0; i < c->n_requesters; i++) {
        struct cache_queue *q = c->queues[i];
        for (uint64_t n = q ? q->consumed + 1 : 1; q && n <= q->served; n++) {
            const struct cache_load *l = cache_queue_load(q, n);
            const struct transfer_expert *x = transfer_expert_at(c, l->layer, l->expert);
            if ((x->transient || x->filling) && (l->layer != layer || l->expert != expert))
                return true;
        }
    }
    return false;
}

static uint32_t free_slots(const struct transfer_scheduler *c)
{
    return c->owner.free_slots(c->owner.arg);
}

static uint32_t free_soon(const struct transfer_scheduler *c)
{
    return free_slots(c) + c->owner.retired_slots(c->owner.arg);
}

/* A quarter of a layer, and an eighth of the device at most: with half of a layer prompts take the
 * same time, with what decoding keeps free up to a tenth longer where the link and the device need
 * the same time (replay). */
static uint32_t ahead_of(const struct transfer_scheduler *c)
{
    uint32_t quarter = c->shape.n_experts * c->most_segments / 4, most = c->shape.n_slots / 8;
    return quarter < most ? quarter : most;
}

static bool unobtainable(void *arg, uint32_t layer, uint32_t expert)
{
    const struct blocked_by *b = arg;
    return !transfer_is_obtainable(b->transfers, layer, expert);
}

void transfer_free_ahead(struct transfer_scheduler *c)
{
    struct blocked_by b = {c, true, UINT32_MAX, UINT32_MAX};
    uint32_t layer, expert, most = ahead_of(c);
    for (int i = 0; i < AHEAD_AT_ONCE && free_soon(c) < most; i++) {
        if (!sched_cache_passed(c->policy, blocked, unobtainable, &b, &layer, &expert) ||
            layer >= c->shape.n_layers || expert >= c->shape.n_experts ||
            blocked(&b, layer, expert))
            return;
        transfer_evict(c, layer, expert);
        c->hinting = false; /* what the policy wanted before may not be what it wants now */
    }
}

bool transfer_find_exchange(struct transfer_scheduler *c, double copy_s, uint32_t *layer,
                            uint32_t *expert)
{
    struct blocked_by b = {c, true, UINT32_MAX, UINT32_MAX};
    return sched_cache_exchange(c->policy, copy_s, blocked, unobtainable, &b, layer, expert) &&
           transfer_may_copy(c, *layer, *expert);
}

static void reclaim(const struct transfer_scheduler *c)
{
    c->owner.reclaim(c->owner.arg);
}

/* If the policy keeps no loads, loads reuse the slots of consumed loads, and what the policy keeps
 * is spared. Not for long: a requester may want all its loads before it consumes the first. */
static bool should_wait(struct transfer_scheduler *c, uint32_t layer, uint32_t expert,
                        uint64_t now_ns)
{
    if (c->keeps_loads || !slots_will_return(c, layer, expert))
        return false;
    if (!c->sparing_since_ns)
        c->sparing_since_ns = now_ns;
    return now_ns - c->sparing_since_ns < SPARE_NS;
}

/* A slot that was retired earlier is free no later than one retired now, so nothing more is evicted
 * while one is on its way. */
bool transfer_evict_for_demand(struct transfer_scheduler *c, uint32_t layer, uint32_t expert,
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
    /* The next load's slots are freed now: they become reusable while this load is copied. One of
     * the free slots is this load's. */
    while (c->keeps_loads && free_soon(c) - 1 < c->shape.reserve &&
           evict_for(c, layer, expert, true, 0, true))
        ;
    return true;
}

/* A slot that is retired while a layer is computed is free when that layer is over; until then the
 * link would be idle. So a prefetch that is more likely than not may use half of the reserve while
 * as many slots are on their way back. (If any prediction could, policies with bad ones would lose
 * up to a tenth, because their loads wait.) */
bool transfer_evict_for_prefetch(struct transfer_scheduler *c, uint32_t layer, uint32_t expert,
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
