/* The slots of the device's arena, or of the host tier: which are free, being filled, resident or retired, and when a retired one may be
 * used again. Knows nothing of experts. One thread at a time (the cache's lock).
 *
 *     free --take--> filling --filled--> resident --retire--> retired --reclaim--> free
 *                                        resident <--restore-- retired
 *
 * Slots from `limit` on are not to be used: a free one of them is absent, a retired one becomes so when it is
 * reclaimed, and what they hold is for the owner to give up. An absent slot may have no memory.
 *
 * A reader is an attached worker, known by its epoch (ipc/cache_channel.h). Where there is memory to be poisoned, a free slot
 * holds poison, and so does one that is being filled until the copy is made. Else a free slot's bytes are what they were
 * until it is taken, and the one that has been free for the longest is taken first.
 */
#ifndef MOED_MEMD_CACHE_SLOTS_H
#define MOED_MEMD_CACHE_SLOTS_H

#include "base/error.h"
#include "device/link.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum { CACHE_MAX_READERS = 32 };
enum slot_state { SLOT_FREE, SLOT_FILLING, SLOT_RESIDENT, SLOT_RETIRED, SLOT_ABSENT, SLOT_STATES };

struct cache_slots {
    struct device_link *link; /* poisons; borrowed; NULL: nothing is poisoned */
    const struct device_arena *arena; /* of the link; borrowed */
    uint64_t slot_bytes;
    uint32_t n; /* that there may be */
    uint32_t limit;
    uint32_t n_leaving; /* retired ones from the limit on */
    uint32_t counts[SLOT_STATES];
    uint8_t *states; /* [n] */
    uint32_t
        *free; /* [n], counts[SLOT_FREE] from first_free on and round: the longest free first */
    uint32_t first_free;
    uint32_t *retired; /* [n], the first counts[SLOT_RETIRED], in any order */
    uint32_t *waiting; /* [n] bit r: the slot is retired and reader r may still read it */
    uint64_t *seen;    /* [n][CACHE_MAX_READERS] the epoch of each when it was retired */
    _Atomic uint64_t *epochs[CACHE_MAX_READERS]; /* borrowed; NULL: no such reader */
};

/* n slots of slot_bytes, those before the limit free: the memory is poisoned already. NULL and NULL where nobody
 * relies on that. */
enum error_code cache_slots_init(struct cache_slots *s, struct device_link *link,
                                 const struct device_arena *arena, uint64_t slot_bytes, uint32_t n,
                                 uint32_t limit, struct error *e);
void cache_slots_fini(struct cache_slots *s); /* takes a zeroed one */

/* The reader's number, or -1 where there are CACHE_MAX_READERS. It has read nothing yet. */
int cache_slots_add_reader(struct cache_slots *s, _Atomic uint64_t *epoch);
/* It reads no more, by the kernel's word. */
void cache_slots_remove_reader(struct cache_slots *s, int reader);

bool cache_slots_take(struct cache_slots *s, uint32_t *slot); /* false: none is free */
/* This one, which is free: for what it held before. */
void cache_slots_take_this(struct cache_slots *s, uint32_t slot);
void cache_slots_filled(struct cache_slots *s, uint32_t slot);
/* Call after the residency word that took the slot out of the table is stored. */
void cache_slots_retire(struct cache_slots *s, uint32_t slot);
/* It is wanted again: its bytes are as they were. Before the word that puts it back into the table is stored. */
void cache_slots_restore(struct cache_slots *s, uint32_t slot);
/* Free (and poison) the retired slots that no reader can still read; how many. */
uint32_t cache_slots_reclaim(struct cache_slots *s);

/* Another limit, n at most. Those before it have memory, and where that is relied on it is poisoned. */
void cache_slots_limit(struct cache_slots *s, uint32_t limit);
/* Nothing is, or may still be read, from this slot on; none before the limit. */
bool cache_slots_empty_from(const struct cache_slots *s, uint32_t slot);

/* The counts, lists and states agree: every slot is in exactly one state. For tests and assertions. */
bool cache_slots_add_up(const struct cache_slots *s);

#endif
