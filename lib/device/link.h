/* The owner's side of a device's memory: the arena, which workers read, and the link over which
 * moed-memd fills it.
 *
 * The arena is a few allocations, its extents (ipc/arena_layout.h). The first extent may begin with
 * a copy of the pool's dense weights, then flags; slots for experts follow. Each further extent has
 * only slots. Extents can be added, and the last one removed, but not the first.
 *
 * emu: an extent is a part of shared memory, and the link paces memcpy. cuda: an extent is the
 * device's memory, which workers import by its handle, and the link is a stream's copies. host:
 * there is no link. */
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

/* An extent of the arena. Workers find it by the handle: its offset (uint64_t) in the shared memory
 * of the first extent, which has room for all, or a handle of the device module. */
struct device_extent {
    uint8_t *slots; /* the first slot, on the device; without shared memory only the link reads and
                       writes it */
    uint32_t n_slots;
    struct shm shared; /* of all extents, in the first one; base NULL: none */
    struct device_handle handle;
};

struct device_arena {
    uint64_t dense_bytes;  /* at the beginning of the first extent; 0: no dense weights */
    uint64_t slots_offset; /* in the first extent */
    uint64_t flags_offset; /* there: uint32_t [n_flags], one a slot, 0 at first; DEVICE_NO_FLAGS:
                              the arena has none */
    uint64_t n_flags;
    uint64_t slot_bytes;
    struct arena_layout layout;
    uint32_t n_extents;
    struct device_extent extents[ARENA_EXTENTS];
};

static inline uint8_t *device_arena_slot(const struct device_arena *a, uint32_t slot)
{
    uint32_t extent = arena_extent_of(a->layout, slot);
    return a->extents[extent].slots +
           (uint64_t)(slot - arena_extent_begin(a->layout, extent)) * a->slot_bytes;
}

/* Opens the device. ERROR_USAGE: the device has no memory of its own (host). cuda:
 * ERROR_UNSUPPORTED (no module, no driver, too old), ERROR_NOT_FOUND (no such device). */
enum error_code device_link_new(const struct device_spec *s, struct device_link **out,
                                struct error *e);
void device_link_free(struct device_link *l); /* takes NULL; releases the arena */

/* The error of a device whose mode lets only one process use it; moed needs two. */
enum error_code device_exclusive(const struct device_facts *facts, unsigned ordinal,
                                 struct error *e);

/* NULL: the emulated device has no module. */
const struct device_module *device_link_module(const struct device_link *l);
/* The device's name, and its memory as it is now. emu: as much memory as is requested. */
void device_link_facts(struct device_link *l, struct device_facts *out);
/* Waits until that many bytes are free, ten seconds at most, then returns the facts: workers of a
 * killed memd may still hold memory. bytes 0: waits until the free memory has not changed for a
 * while. */
void device_link_await(struct device_link *l, uint64_t bytes, struct device_facts *out);

/* From now on device_link_await calls report when it begins to wait for bytes: what it waits for.
 */
void device_link_report(struct device_link *l, void (*report)(void *arg, const char *text),
                        void *arg);

#define DEVICE_ALLOCATION_BYTES                                                                    \
    (2ull << 20) /* the unit in which a driver allocates and exports                               \
                  */
/* The offset of the slots behind dense weights and flags. */
uint64_t device_slots_offset(uint64_t dense_bytes, uint64_t n_flags);
/* True: slots can have flags. If false, pass 0 flags to device_link_allocate. */
bool device_link_signals(struct device_link *l);
/* Called once: allocates dense weights, flags and the first extents, for n_slots at least. n_flags:
 * the most slots that there will ever be. Slots are poisoned as device_link_poison does. *out is
 * valid as long as the link, and changes with the two functions below. */
enum error_code device_link_allocate(struct device_link *l, uint64_t dense_bytes, uint64_t n_flags,
                                     uint64_t slot_bytes, struct arena_layout layout,
                                     uint32_t n_slots, const struct device_arena **out,
                                     struct error *e);
/* Adds an extent with n_slots poisoned slots. ERROR_MEMORY: the device has not enough memory. On
 * the thread that copies. */
enum error_code device_link_add_extent(struct device_link *l, uint32_t n_slots, struct error *e);
/* Releases the last extent, which is not the first. No process may have it mapped any more. On the
 * thread that copies. */
void device_link_drop_extent(struct device_link *l);
/* Keeps n allocations of `bytes` (DEVICE_LINK_HELD at most) that nobody uses, so that no other
 * program takes the memory before a worker does: allocates what is missing, releases the others.
 * Whole units (DEVICE_ALLOCATION_BYTES); one that a worker uses in part may lack. ERROR_MEMORY: the
 * device has not enough memory, and some are missing. emu: does nothing. On the thread that copies.
 */
enum { DEVICE_LINK_HELD = 64 };
enum error_code device_link_hold(struct device_link *l, uint32_t n, uint64_t bytes,
                                 struct error *e);
/* Copies the dense weights from host memory into the arena, before the first copy of a slot. Not
 * counted in device_link_bytes. */
enum error_code device_link_place_dense(struct device_link *l, const void *from, struct error *e);

/* Copies of host memory into the arena. The link has a queue: copies are made and end in the order
 * in which they were queued, and the link goes on to the next one without waiting for its owner.
 * One thread a link. An error: the device is lost to this process.
 *
 * emu: the calling thread moves the bytes, in device_link_collect, so that they are there when the
 * link would have them. It sleeps, except for the time that this takes. The latency of a copy that
 * is queued behind another one overlaps that one. Consecutive copies are paced without gaps,
 * however long the caller took in between: the link is busy from the last copy's end. After
 * device_link_rest it is busy from the call. */
enum { DEVICE_LINK_QUEUE = 4, DEVICE_COPY_SIGNALS = 8 };

/* What a slot's flag becomes. */
struct device_signal {
    uint32_t slot, value;
};

struct device_copy {
    void *to;
    const void *from; /* unchanged until the copy has been collected */
    size_t bytes;
    /* When the bytes are there the flags of these slots are set: streams may wait for them (await
     * of module.h). Copies queued earlier are there then, too. */
    struct device_signal signals[DEVICE_COPY_SIGNALS];
    uint32_t n_signals;
};

/* Queues a copy, DEVICE_LINK_QUEUE at most, and returns at once. */
enum error_code device_link_queue(struct device_link *l, const struct device_copy *copy,
                                  struct error *e);
uint32_t device_link_queued(const struct device_link *l); /* and not collected; for tests */
/* Nanoseconds until it is worth while to collect the oldest queued copy, and until all are made, as
 * far as is known. 0: now. */
uint64_t device_link_left_ns(const struct device_link *l);
uint64_t device_link_all_left_ns(const struct device_link *l);
/* How long the link needs for so many bytes, without latency, as far as is known. */
uint64_t device_link_copying_ns(const struct device_link *l, size_t bytes);
/* Takes the oldest copy, of which there is one, out of the queue when it is made. Waits for it:
 * polls for a moment, then sleeps. */
enum error_code device_link_collect(struct device_link *l, struct error *e);
/* Queues a copy, which may be large, behind no other, and collects it. */
enum error_code device_link_copy(struct device_link *l, void *to, const void *from, size_t bytes,
                                 struct error *e);
/* Reports that there is nothing to copy for now. On the thread that copies. */
void device_link_rest(struct device_link *l);
/* Poisons a slot before a later copy of this thread: a result computed with it before that copy is
 * done becomes NaN. emu: parts of a large slot (link_emu.c). cuda: only where the environment has
 * MOED_DEVICE_POISON, for tests. */
void device_link_poison(struct device_link *l, void *memory, size_t bytes);

/* Pins host memory, so that copies from it are faster. Takes a while for much memory. Any thread,
 * also while another one copies. The memory must exist as long as the link. Gives up soon after
 * *stop becomes true. An error: the driver refused some parts, and the text says how much; copies
 * from those work as before, but slower. The other parts are pinned. */
enum error_code device_link_pin(struct device_link *l, const void *memory, size_t bytes,
                                const _Atomic bool *stop, struct error *e);

/* Nanoseconds that the link was busy since it was made, and bytes it moved; any thread. */
uint64_t device_link_busy_ns(const struct device_link *l);
uint64_t device_link_bytes(const struct device_link *l);

#endif
