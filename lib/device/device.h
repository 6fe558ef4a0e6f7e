/* The accelerator of a deployment, chosen by --device:
 *
 *   host    No accelerator. Device memory is the host pool itself and nothing is copied. The CPU
 *           executor computes the routed experts, the worker's own threads the dense part.
 *   emu:vram=SIZE,link=RATE[,latency=TIME][,speed=FACTOR][,call=TIME][,devices=N]
 *           An emulated accelerator, for tests and for developing policies without one. Only copies
 *           over a paced link fill its memory, the arena. The worker's threads compute experts out
 *           of that arena, FACTOR times as fast (at most 1); each call of experts takes TIME more.
 *           SIZE: bytes with K, M, G (powers of 1000) or Ki, Mi, Gi, or "25%" of the model's routed
 *           experts. RATE: bytes a second, with K, M, G. TIME: with us, ms, s. devices: how many
 *           (1), each with an arena and a link of its own.
 *   cuda[:N[,N]...][,vram=SIZE][,reserve=SIZE][,dense=host]
 *           A CUDA device, number N of the machine (0), or several, through a module that is loaded
 *           at run time (module.h). Its memory holds the dense weights and the arena for experts;
 *           its kernels compute with both. Several hold their own copies of both. vram: the bytes
 *           of each arena; without it the arena gets what the other parts leave. reserve: bytes
 * that stay free for other programs. dense=host: the dense weights stay in host memory.
 *
 * device_parse refuses another name and lists these. */
#ifndef MOED_DEVICE_DEVICE_H
#define MOED_DEVICE_DEVICE_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum device_kind { DEVICE_HOST, DEVICE_EMU, DEVICE_CUDA };
enum { DEVICES_MAX = 8 }; /* of a deployment */

struct device_spec {
    enum device_kind kind;
    /* emu and cuda */
    uint64_t vram_bytes; /* 0: vram_share holds */
    double vram_share;   /* of the routed experts' bytes; both 0: as much as there is (cuda) */
    /* emu: the rate to emulate; cuda: the assumption until it is measured */
    double link_bytes_per_s;
    double link_latency_s; /* before the bytes of each copy; default 10 us */
    double speed;          /* default 1 */
    double call_s;         /* emu: of each call of experts, added to its computing; default 0 */
    unsigned n_devices;    /* 0: host */
    unsigned ordinals[DEVICES_MAX]; /* cuda: of each */
    unsigned ordinal;   /* cuda: of the one that this is about; device_parse: the first */
    bool dense_on_host; /* cuda: the device has no copy of the dense weights */
    bool reserve_set;   /* cuda: reserve_bytes is the user's; else device_plan.h has a default */
    uint64_t reserve_bytes;
};

/* ERROR_UNSUPPORTED: an unknown device; the text lists the known ones. ERROR_USAGE: an option that
 * is not understood; the text names it. */
enum error_code device_parse(const char *text, struct device_spec *out, struct error *e);
/* Of several devices, what the index-th is: the same with another ordinal. */
struct device_spec device_of(const struct device_spec *s, unsigned index);
/* Parses a value of vram= into s->vram_bytes or s->vram_share. ERROR_USAGE. */
enum error_code device_parse_vram(const char *text, struct device_spec *s, struct error *e);
/* The requested bytes of the arena, at least 1, for a model with expert_bytes of routed experts. 0:
 * no size was requested. */
uint64_t device_arena_bytes(const struct device_spec *s, uint64_t expert_bytes);

/* How many of the cores do the device's computing. An emulated device has half of them, at least
 * one: the worker runs on these and the CPU executor on the rest, so device and CPU overlap as with
 * a real device. A CUDA device has none: while the worker computes the dense part the executor has
 * nothing to do. So each has all cores in its turn, but for device_spinners. */
unsigned device_cores(const struct device_spec *s, unsigned cores);
/* How many cores the executor leaves to threads that wait for a device without sleeping: the
 * worker's, and memd's while it copies. An executor's thread that shares its core with one of them
 * would be late, and with it the layer. 0 where there are few cores. */
unsigned device_spinners(const struct device_spec *s, unsigned cores);

/* The content of device memory before it is filled and after it is released. Every quantised or
 * float type reads it as NaN (scales 0xffff), so a wrong residency bit breaks the result. */
#define DEVICE_POISON 0xff
void device_poison(void *memory, size_t bytes);

#endif
