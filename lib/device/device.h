/* The accelerator of a deployment, chosen by --device:
 *
 *   host    none: device memory is the host pool itself, nothing is copied, routed experts are computed by
 *           the CPU executor and the dense part by the worker's own threads.
 *   emu:vram=SIZE,link=RATE[,latency=TIME][,speed=FACTOR][,call=TIME]
 *           an emulated accelerator, for tests and for developing policies without one. Its memory is an arena
 *           that is filled by copies over a paced link alone; its experts are computed by the worker's threads out of
 *           that arena, FACTOR times as fast (at most 1), and each call of experts takes TIME beside. SIZE: bytes with K, M, G (powers of 1000) or Ki, Mi, Gi, or
 *           "25%" of the model's routed experts. RATE: bytes a second, with K, M, G. TIME: with us, ms, s.
 *   cuda[:N][,vram=SIZE][,dense=host]
 *           a CUDA device, the N-th of the machine (0): its memory holds the dense weights and the arena for experts, its kernels
 *           compute with what is in it. vram: the arena's bytes; without it what is left when all else has its room. dense=host:
 *           the dense weights stay in host memory. Through a module that is loaded where it is asked for (module.h).
 *
 * Another name is refused with the list of those that there are.
 */
#ifndef MOED_DEVICE_DEVICE_H
#define MOED_DEVICE_DEVICE_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum device_kind { DEVICE_HOST, DEVICE_EMU, DEVICE_CUDA };

struct device_spec {
    enum device_kind kind;
    /* of a device with memory of its own */
    uint64_t vram_bytes; /* 0: vram_share */
    double vram_share;   /* of the routed experts' bytes; 0 too: as much as there is (cuda) */
    /* emu: as it is to be; cuda: what is reckoned with until it is measured */
    double link_bytes_per_s;
    double link_latency_s; /* before the bytes of each copy; 10 us where not given */
    double speed;          /* 1 where not given */
    double call_s;         /* emu: of each call of experts, beside computing; 0 where not given */
    unsigned ordinal;      /* cuda */
    bool dense_on_host;    /* cuda: the device has no copy of the dense weights */
};

/* ERROR_UNSUPPORTED for a device that there is not, naming those that there are; ERROR_USAGE for an option that makes no
 * sense, naming it. */
enum error_code device_parse(const char *text, struct device_spec *out, struct error *e);
/* What stands behind vram=, into s->vram_bytes or s->vram_share. ERROR_USAGE. */
enum error_code device_parse_vram(const char *text, struct device_spec *s, struct error *e);
/* The bytes of the arena that is asked for, of a model with so many bytes of routed experts; at least 1. 0: nothing is said. */
uint64_t device_arena_bytes(const struct device_spec *s, uint64_t expert_bytes);

/* Of so many cores, those that do the device's computing. An emulated one has half of them, at least one: the worker runs on
 * these and the CPU executor on the rest, so that device and CPU work side by side as on a machine that has a real one. A
 * CUDA device takes none: while experts are computed the worker only waits for it, and while the worker computes (the dense
 * part) the executor has nothing to do, so each has all the cores in its turn, as without a device. */
unsigned device_cores(const struct device_spec *s, unsigned cores);

/* What device memory holds before it is filled and after it is given up: every quantised or float type reads it as
 * NaN (scales 0xffff), so a wrong residency bit breaks the result. */
#define DEVICE_POISON 0xff
void device_poison(void *memory, size_t bytes);

#endif
