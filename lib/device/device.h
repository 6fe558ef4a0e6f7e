/* The accelerator of a deployment, chosen by --device:
 *
 *   host    none: device memory is the host pool itself, nothing is copied, routed experts are computed by
 *           the CPU executor and the dense part by the worker's own threads.
 *   emu:vram=SIZE,link=RATE[,latency=TIME][,speed=FACTOR]
 *           an emulated accelerator, for tests and for developing policies without one. Its memory is an arena
 *           that is filled by copies over a paced link alone; its experts are computed by the worker's threads out of
 *           that arena, FACTOR times as fast (at most 1). SIZE: bytes with K, M, G (powers of 1000) or Ki, Mi, Gi, or
 *           "25%" of the model's routed experts. RATE: bytes a second, with K, M, G. TIME: with us, ms, s.
 *
 * A name that this build does not have is refused with the list of those it has.
 */
#ifndef MOED_DEVICE_DEVICE_H
#define MOED_DEVICE_DEVICE_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum device_kind { DEVICE_HOST, DEVICE_EMU };

struct device_spec {
    enum device_kind kind;
    /* emu */
    uint64_t vram_bytes;     /* 0: vram_share */
    double vram_share;       /* of the routed experts' bytes */
    double link_bytes_per_s;
    double link_latency_s;   /* before the bytes of each copy; 10 us where not given */
    double speed;            /* 1 where not given */
};

/* ERROR_UNSUPPORTED for a device that this build does not have, naming those it has; ERROR_USAGE for an option
 * that makes no sense, naming it. */
enum error_code device_parse(const char *text, struct device_spec *out, struct error *e);
/* The bytes of the arena for a model with so many bytes of routed experts. 0: the device has no memory of its own. */
uint64_t device_arena_bytes(const struct device_spec *s, uint64_t expert_bytes);

/* Of so many cores, those that do the device's computing. An emulated one has half of them, at least one: the worker runs on
 * these and the CPU executor on the rest, so that device and CPU work side by side as on a machine that has a real one. */
unsigned device_cores(const struct device_spec *s, unsigned cores);

/* What device memory holds before it is filled and after it is given up: every quantised or float type reads it as
 * NaN (scales 0xffff), so a wrong residency bit breaks the result. */
void device_poison(void *memory, size_t bytes);

/* A link to the device: copies queue on it one after the other, each taking latency + bytes / rate of wall-clock. */
struct device_link;
enum error_code device_link_new(const struct device_spec *s, struct device_link **out,
                                struct error *e);
void device_link_free(struct device_link *l); /* takes NULL */
/* Copy and return when the copy is done. The calling thread sleeps meanwhile, but for the time that the bytes themselves take
 * to be moved, at the end. Copies that are due in a row are paced without gaps: the link is busy from the later of
 * the call and the last copy's end. One thread a link. */
void device_link_copy(struct device_link *l, void *to, const void *from, size_t bytes);
/* Nanoseconds that the link was busy since it was made, and bytes it moved; any thread. */
uint64_t device_link_busy_ns(const struct device_link *l);
uint64_t device_link_bytes(const struct device_link *l);

#endif
