/* The slots of the device's arena, or of the host tier: their states, and when a retired slot may
 * be used again. The module knows nothing of experts. One thread at a time (the owner's lock).
 *
 *     free --take--> filling --filled--> resident --retire--> retired --reclaim--> free
 *                                        resident <--restore-- retired
 *
 * Slots from `limit` on must not be used: a free one becomes absent at once, a retired one when it
 * is reclaimed; the owner gives up what the others hold. An absent slot may have no memory.
 *
 * A reader is an attached worker, known by its epoch (ipc/cache_channel.h).
 *
 * With a link that poisons, a free slot holds poison, and a slot that is being filled does so until
 * the copy is made. Without one, a free slot keeps its bytes until it is taken, and the slot that
 * has been free for the longest is taken first. */
#ifndef MOED_MEMD_SLOTS_CACHE_SLOTS_H
#define MOED_MEMD_SLOTS_CACHE_SLOTS_H

#include "base/error.h"
#include "device/link.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum { CACHE_MAX_READERS = 32 };
enum slot_state { SLOT_FREE, SLOT_FILLING, SLOT_RESIDENT, SLOT_RETIRED, SLOT_ABSENT, SLOT_STATES };

struct cache_slots {
    struct device_link *link;         /* poisons; borrowed; NULL: nothing is poisoned */
    const struct device_arena *arena; /* of the link; borrowed */
    uint64_t slot_bytes;
    uint32_t n; /* slots that there can be */
    uint32_t limit;
    uint32_t n_leaving; /* retired slots from the limit on */
    uint32_t counts[SLOT_STATES];
    uint8_t *states; /* [n] */
    uint32_t *free; /* [n] a ring: counts[SLOT_FREE] slots from first_free on, longest free first */
    uint32_t first_free;
    uint32_t *retired; /* [n], the first counts[SLOT_RETIRED], in any order */
    uint32_t *waiting; /* [n] bit r: the slot is retired and reader r may still read it */
    uint64_t *seen;    /* [n][CACHE_MAX_READERS] each reader's epoch when the slot was retired */
    void *memory;      /* of these arrays */
    _Atomic uint64_t *epochs[CACHE_MAX_READERS]; /* borrowed; NULL: no such reader */
};

/* n slots of slot_bytes; those before the limit are free, and their memory is poisoned already.
 * link and arena: NULL where nobody relies on poison. */
enum error_code cache_slots_init(struct cache_slots *s, struct device_link *link,
                                 const struct device_arena *arena, uint64_t slot_bytes, uint32_t n,
                                 uint32_t limit, struct error *e);
void cache_slots_fini(struct cache_slots *s); /* takes a zeroed one */

/* Returns the reader's number, or -1 where there are CACHE_MAX_READERS. It has read nothing yet. */
int cache_slots_add_reader(struct cache_slots *s, _Atomic uint64_t *epoch);
/* The kernel reports that the reader is gone: it reads no more. */
void cache_slots_remove_reader(struct cache_slots *s, int reader);

bool cache_slots_take(struct cache_slots *s, uint32_t *slot);         /* false: none is free */
bool cache_slots_is_free(const struct cache_slots *s, uint32_t slot); /* slot: any number */
/* Takes this slot, which is free: its bytes are wanted again, or it follows another one. */
void cache_slots_take_this(struct cache_slots *s, uint32_t slot);
void cache_slots_filled(struct cache_slots *s, uint32_t slot);
/* Call after the store of the residency word that took the slot out of the table. */
void cache_slots_retire(struct cache_slots *s, uint32_t slot);
/* Makes a retired slot resident again, with its bytes as they were. Call before the store of the
 * word that puts it back into the table. */
void cache_slots_restore(struct cache_slots *s, uint32_t slot);
/* Frees (and poisons) the retired slots that no reader can still read. Returns how many. */
uint32_t cache_slots_reclaim(struct cache_slots *s);

/* Sets another limit, n at most. Slots before it must have memory, poisoned where that is relied
 * on. */
void cache_slots_limit(struct cache_slots *s, uint32_t limit);
/* True: all slots from this one on are absent, so nobody can still read them. Never true before the
 * limit. */
bool cache_slots_empty_from(const struct cache_slots *s, uint32_t slot);

/* True: counts, lists and states agree, and every slot is in one state. For tests and assertions.
 */
bool cache_slots_add_up(const struct cache_slots *s);

struct slots_state {
    uint64_t total, free, resident, filling, retired; /* total = the sum of the others */
    uint64_t slot_bytes;
};
void cache_slots_state(const struct cache_slots *s, struct slots_state *out);

#endif
