/* Slots and their grace; see cache_slots.h. tests/model/slots.pml models the protocol between memd
 * and the readers:
 *
 *     memd                                   reader
 *     M1 word = fewer segments  (seq_cst)    R1 epoch = odd             (seq_cst)
 *     M2 seen = epoch           (seq_cst)    R2 reads word, slot number (seq_cst, acquire)
 *     M3 until seen is even or               R3 reads the slot
 *        epoch != seen          (seq_cst)    R4 epoch = even            (seq_cst)
 *     M4 writes the slot
 *
 * M1, M2, R1 and R2 have one total order. If M2 reads an epoch from before R1, then M1 comes before
 * R2, and the reader finds the smaller count: it does not read the slot. Otherwise M2 saw the
 * reader's odd epoch, and M3 waits for R4 or a later store of the same reader. R4 releases R3, and
 * the load that ends M3 (or, for an even epoch, M2 itself) acquires it: so M4 comes after R3.
 *
 * Invariants:
 * 1. Every slot is in one state; counts[] has the number of each; free[] and retired[] list theirs.
 * 2. A slot is written (poisoned, or filled by the link) only while it is free or being filled.
 * 3. waiting[slot] has no bit of a reader that has been removed, and is 0 for slots that are not
 *    retired.
 * 4. A free slot lies before the limit, an absent one does not.
 */
#include "cache_slots.h"

#include "base/arrays.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum error_code cache_slots_init(struct cache_slots *s, struct device_link *link,
                                 const struct device_arena *arena, uint64_t slot_bytes, uint32_t n,
                                 uint32_t limit, struct error *e)
{
    struct cache_slots slots = {
        .link = link, .arena = arena, .slot_bytes = slot_bytes, .n = n, .limit = limit};
    slots.memory =
        ARRAYS_NEW(ARRAY(slots.states, n), ARRAY(slots.free, n), ARRAY(slots.retired, n),
                   ARRAY(slots.waiting, n), ARRAY(slots.seen, (size_t)n * CACHE_MAX_READERS));
    if (!slots.memory)
        return error_set(e, ERROR_MEMORY, "no memory for the table of %u slots", n);
    for (uint32_t i = 0; i < n; i++)
        slots.states[i] = i < limit ? SLOT_FREE : SLOT_ABSENT;
    for (uint32_t i = 0; i < limit; i++)
        slots.free[i] = i;
    slots.counts[SLOT_FREE] = limit;
    slots.counts[SLOT_ABSENT] = n - limit;
    *s = slots;
    return ERROR_OK;
}

void cache_slots_fini(struct cache_slots *s)
{
    free(s->memory);
    *s = (struct cache_slots){0};
}

int cache_slots_add_reader(struct cache_slots *s, _Atomic uint64_t *epoch)
{
    for (int r = 0; r < CACHE_MAX_READERS; r++)
        if (!s->epochs[r]) {
            s->epochs[r] = epoch;
            return r;
        }
    return -1;
}

void cache_slots_remove_reader(struct cache_slots *s, int reader)
{
    s->epochs[reader] = NULL;
    for (uint32_t i = 0; i < s->counts[SLOT_RETIRED]; i++)
        s->waiting[s->retired[i]] &= ~(1u << reader);
}

static void move(struct cache_slots *s, uint32_t slot, enum slot_state from, enum slot_state to)
{
    assert(slot < s->n && s->states[slot] == from);
    s->states[slot] = (uint8_t)to;
    s->counts[from]--;
    s->counts[to]++;
}

/* The i-th free slot; i = counts[SLOT_FREE]: where the next free slot goes. */
static uint32_t *free_at(const struct cache_slots *s, uint32_t i)
{
    return &s->free[((uint64_t)s->first_free + i) % s->n];
}

bool cache_slots_take(struct cache_slots *s, uint32_t *slot)
{
    if (s->counts[SLOT_FREE] == 0)
        return false;
    *slot = *free_at(s, 0);
    s->first_free = (s->first_free + 1) % s->n;
    move(s, *slot, SLOT_FREE, SLOT_FILLING);
    return true;
}

bool cache_slots_is_free(const struct cache_slots *s, uint32_t slot)
{
    return slot < s->n && s->states[slot] == SLOT_FREE;
}

void cache_slots_take_this(struct cache_slots *s, uint32_t slot)
{
    uint32_t i = 0;
    while (*free_at(s, i) != slot)
        i++;
    for (; i > 0; i--) /* the slots before it keep their order */
        *free_at(s, i) = *free_at(s, i - 1);
    s->first_free = (s->first_free + 1) % s->n;
    move(s, slot, SLOT_FREE, SLOT_FILLING);
}

void cache_slots_filled(struct cache_slots *s, uint32_t slot)
{
    move(s, slot, SLOT_FILLING, SLOT_RESIDENT);
}

void cache_slots_retire(struct cache_slots *s, uint32_t slot)
{
    uint64_t *seen = s->seen + (size_t)slot * CACHE_MAX_READERS;
    uint32_t waiting = 0;
    for (int r = 0; r < CACHE_MAX_READERS; r++) {
        if (!s->epochs[r])
            continue;
        seen[r] = atomic_load(s->epochs[r]); /* M2 */
        if (seen[r] & 1)
            waiting |= 1u << r;
    }
    s->waiting[slot] = waiting;
    s->n_leaving += slot >= s->limit;
    s->retired[s->counts[SLOT_RETIRED]] = slot;
    move(s, slot, SLOT_RESIDENT, SLOT_RETIRED);
}

void cache_slots_restore(struct cache_slots *s, uint32_t slot)
{
    uint32_t i = 0;
    while (s->retired[i] != slot)
        i++;
    s->retired[i] = s->retired[s->counts[SLOT_RETIRED] - 1];
    s->waiting[slot] = 0;
    s->n_leaving -= slot >= s->limit;
    move(s, slot, SLOT_RETIRED, SLOT_RESIDENT);
}

/* One look of M3. True: no reader is left that may read the slot. */
static bool grace_is_over(struct cache_slots *s, uint32_t slot)
{
    const uint64_t *seen = s->seen + (size_t)slot * CACHE_MAX_READERS;
    for (uint32_t left = s->waiting[slot]; left; left &= left - 1) {
        int r = __builtin_ctz(left);
        if (atomic_load(s->epochs[r]) != seen[r])
            s->waiting[slot] &= ~(1u << r);
    }
    return s->waiting[slot] == 0;
}

uint32_t cache_slots_reclaim(struct cache_slots *s)
{
    uint32_t n = 0;
    for (uint32_t i = s->counts[SLOT_RETIRED]; i-- > 0;) {
        uint32_t slot = s->retired[i];
        if (!grace_is_over(s, slot))
            continue;
        s->retired[i] = s->retired[s->counts[SLOT_RETIRED] - 1];
        if (slot >= s->limit) {
            s->n_leaving--;
            move(s, slot, SLOT_RETIRED, SLOT_ABSENT);
        } else {
            *free_at(s, s->counts[SLOT_FREE]) = slot;
            move(s, slot, SLOT_RETIRED, SLOT_FREE);
            n++;
        }
        if (s->link) /* absent slots too: their extent may stay */
            device_link_poison(s->link, device_arena_slot(s->arena, slot), s->slot_bytes); /* M4 */
    }
    return n;
}

void cache_slots_limit(struct cache_slots *s, uint32_t limit)
{
    uint32_t n_free = s->counts[SLOT_FREE], kept = 0;
    assert(limit <= s->n);
    for (uint32_t i = 0; i < n_free; i++) {
        uint32_t slot = *free_at(s, i);
        if (slot < limit)
            *free_at(s, kept++) = slot; /* the kept ones stay in order */
        else
            move(s, slot, SLOT_FREE, SLOT_ABSENT);
    }
    for (uint32_t slot = s->limit; slot < limit; slot++)
        if (s->states[slot] == SLOT_ABSENT) {
            *free_at(s, s->counts[SLOT_FREE]) = slot;
            move(s, slot, SLOT_ABSENT, SLOT_FREE);
        }
    s->limit = limit;
    s->n_leaving = 0;
    for (uint32_t i = 0; i < s->counts[SLOT_RETIRED]; i++)
        s->n_leaving += s->retired[i] >= limit;
}

bool cache_slots_empty_from(const struct cache_slots *s, uint32_t slot)
{
    while (slot < s->n && s->states[slot] == SLOT_ABSENT)
        slot++;
    return slot == s->n;
}

bool cache_slots_add_up(const struct cache_slots *s)
{
    uint32_t counts[SLOT_STATES] = {0};
    for (uint32_t i = 0; i < s->n; i++) {
        counts[s->states[i]]++;
        if (s->states[i] != SLOT_RETIRED && s->waiting[i])
            return false;
        if (s->states[i] == (i < s->limit ? SLOT_ABSENT : SLOT_FREE))
            return false;
    }
    if (memcmp(counts, s->counts, sizeof counts) != 0)
        return false;
    /* Each list has as many entries as its state has slots, each of that state. The sums differ if
     * a slot stands there twice. */
    uint64_t listed = 0, expected = 0;
    for (uint32_t i = 0; i < counts[SLOT_FREE]; i++) {
        if (s->states[*free_at(s, i)] != SLOT_FREE)
            return false;
        listed += *free_at(s, i);
    }
    for (uint32_t i = 0; i < counts[SLOT_RETIRED]; i++) {
        if (s->states[s->retired[i]] != SLOT_RETIRED)
            return false;
        listed += s->retired[i];
    }
    for (uint32_t i = 0; i < s->n; i++)
        if (s->states[i] == SLOT_FREE || s->states[i] == SLOT_RETIRED)
            expected += i;
    return listed == expected;
}

void cache_slots_state(const struct cache_slots *s, struct slots_state *out)
{
    assert(cache_slots_add_up(s));
    *out = (struct slots_state){.total = s->n - s->counts[SLOT_ABSENT],
                                .free = s->counts[SLOT_FREE],
                                .resident = s->counts[SLOT_RESIDENT],
                                .filling = s->counts[SLOT_FILLING],
                                .retired = s->counts[SLOT_RETIRED],
                                .slot_bytes = s->slot_bytes};
}
