/* The device's memory as its owner has it: an arena that others read, and the link over which it is filled. moed-memd's.
 *
 * The arena is a few allocations, its pieces (ipc/arena_layout.h): in the first perhaps a copy of the pool's dense
 * weights, perhaps flags, then slots for experts; in each of the others more slots. Pieces but the first can be added,
 * and the last one dropped.
 *
 * emu: a piece is shared memory, the link paces memcpy. cuda: a piece is the device's memory, others import it by its
 * handle, the link is a stream's copies. Without one (host) there is nothing to own. */
#ifndef MOED_DEVICE_LINK_H
#define MOED_DEVICE_LINK_H

#include "base/error.h"
#include "device/device.h"
#include "device/module.h"
#include "ipc/arena_layout.h"
#include "ipc/shm.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct device_link;

/* A piece of the arena, and how others come to it: by the handle, which names shared memory (struct shm_name) where
 * there is some, else is the device module's. */
struct device_piece {
    uint8_t *slots; /* the first, on the device; read and written through the link alone where nothing is shared */
    uint32_t n_slots;
    struct shm shared; /* base NULL: none */
    struct device_handle handle;
};

struct device_arena {
    uint64_t dense_bytes;  /* where the first piece begins; 0: no dense weights */
    uint64_t slots_offset; /* in the first piece */
    uint64_t flags_offset; /* there, uint32_t [n_flags], one a slot, 0 at first; DEVICE_NO_FLAGS: there are none */
    uint64_t n_flags;
    uint64_t slot_bytes;
    struct arena_layout layout;
    uint32_t n_pieces;
    struct device_piece pieces[ARENA_PIECES];
};

static inline uint8_t *device_arena_slot(const struct device_arena *a, uint32_t slot)
{
    uint32_t piece = arena_piece_of(a->layout, slot);
    return a->pieces[piece].slots +
           (uint64_t)(slot - arena_piece_begin(a->layout, piece)) * a->slot_bytes;
}

/* Opens the device. ERROR_USAGE: it has no memory of its own. cuda: ERROR_UNSUPPORTED (no module, no driver, too old),
 * ERROR_NOT_FOUND (no such device). */
enum error_code device_link_new(const struct device_spec *s, struct device_link **out,
                                struct error *e);
void device_link_free(struct device_link *l); /* takes NULL; what it allocated is released */

/* NULL: the emulated device, which has none. */
const struct device_module *device_link_module(const struct device_link *l);
/* The device as it is now, name and memory. emu: all the memory that is asked for. */
void device_link_facts(struct device_link *l, struct device_facts *out);
/* The same when so many bytes are free, or in ten seconds: what others leave, such as the workers of a memd that was killed, is
 * waited for. 0: when what is free has not changed for a while. */
void device_link_await(struct device_link *l, uint64_t bytes, struct device_facts *out);

#define DEVICE_ALLOCATION_BYTES (2ull << 20) /* what a driver hands out, and exports, at a time */
/* Where the slots begin behind so many bytes of dense weights, and so many flags. */
uint64_t device_slots_offset(uint64_t dense_bytes, uint64_t n_flags);
/* Whether slots can have flags: their number is asked for then, else 0 is. */
bool device_link_signals(struct device_link *l);
/* Once: dense weights, flags and the first pieces, for n_slots at least. n_flags: how many slots there will ever be, however
 * they are shared out. Slots are poisoned, where device_link_poison does that. *out is valid as long as the link, and
 * changes with the two calls below. */
enum error_code device_link_allocate(struct device_link *l, uint64_t dense_bytes, uint64_t n_flags, uint64_t slot_bytes,
                                     struct arena_layout layout, uint32_t n_slots,
                                     const struct device_arena **out, struct error *e);
/* One piece more, of so many slots, poisoned likewise. ERROR_MEMORY: the device has not enough. The thread that
 * copies. */
enum error_code device_link_add_piece(struct device_link *l, uint32_t n_slots, struct error *e);
/* The last piece goes, which is not the first. Nobody has it any more: no other process either. The thread that
 * copies. */
void device_link_drop_piece(struct device_link *l);
/* The arena's dense bytes, from host memory, before the first copy; not counted with the copies. */
enum error_code device_link_place_dense(struct device_link *l, const void *from, struct error *e);

/* Copy host memory into the arena and return when it is there. One thread a link. emu: the calling thread sleeps meanwhile,
 * but for the time that the bytes themselves take to be moved, at the end; copies in a row are paced without gaps, however long
 * the caller took between them: the link is busy from the last copy's end, and from the call after device_link_rest. An
 * error: the device is lost to this process. */
enum error_code device_link_copy(struct device_link *l, void *to, const void *from, size_t bytes,
                                 struct error *e);
/* The same, and the flag of that slot becomes value when the bytes are there: streams may wait for it (await of module.h). */
enum error_code device_link_copy_signalled(struct device_link *l, void *to, const void *from, size_t bytes,
                                           uint32_t slot, uint32_t value, struct error *e);
/* There is nothing to copy for now. The thread that copies. */
void device_link_rest(struct device_link *l);
/* A slot, before a later copy of this thread: what is computed with it before that is done comes out as NaN. emu: some of
 * it, where it is large (link_emu.c). cuda: only where the environment has MOED_DEVICE_POISON, for tests. */
void device_link_poison(struct device_link *l, void *memory, size_t bytes);

/* Host memory from which copies come, which are quicker then. Takes a while for much memory; any thread, while others
 * copy. It must stay there as long as the link. *stop is looked at now and then. An error costs speed alone. */
enum error_code device_link_pin(struct device_link *l, const void *memory, size_t bytes,
                                const _Atomic bool *stop, struct error *e);

/* Nanoseconds that the link was busy since it was made, and bytes it moved; any thread. */
uint64_t device_link_busy_ns(const struct device_link *l);
uint64_t device_link_bytes(const struct device_link *l);

#endif
