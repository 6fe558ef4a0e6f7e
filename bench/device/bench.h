/* What the parts of bench-device share: the open device, and how a figure is measured and printed.
 *
 * A row of the table is what was measured, the figure, the bound that explains it, and the share of
 * the bound that was reached. On a simulated device everything runs once and prints no speed. */
#ifndef MOED_BENCH_DEVICE_BENCH_H
#define MOED_BENCH_DEVICE_BENCH_H

#include "base/error.h"
#include "device/module.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Set by main before any part runs. */
extern const struct device_module *module;
extern struct device *device;
extern struct device_stream *stream;
extern bool simulated;

/* Measured by the parts that run first, for the parts after them; 0: not measured. */
struct bounds {
    double link, memory; /* bytes a second: of one large copy; within the device, read + written */
    double kernel_s;     /* of the smallest kernel, in a queue of them */
};
extern struct bounds bounds;

extern double measure_seconds; /* of each figure, about */

/* Prints the error and ends the program. */
_Noreturn void fail(const struct error *e);
void finish(void); /* waits for the stream */
void *allocate(size_t bytes);
/* Device memory that reads as small numbers in every tensor type. */
void *allocate_filled(size_t bytes, uint8_t byte);

/* Seconds of one call of work: the median over runs of as many calls as fill a share of --seconds.
 * The device is done with all of a run at its end. turn counts the calls. */
double measure(void (*work)(void *arg, unsigned turn), void *arg);

/* Rows. A bound of 0: there is none. */
void print_rate(const char *what, double bytes, double s, double bound_per_s);
void print_time(const char *what, double s, double bound_s);
void print_heading(const char *text);

/* The parts. */
void bench_copies(void);
void bench_waits(void);
void bench_pinning(void);
void bench_launches(void);
void bench_experts(void);
void bench_rows(void);
void bench_products(void);
void bench_attention(void);
void bench_delta(void);

/* ---- Parts with another process (other.c) ---- */

/* It is made before this process opens the device: a context does not survive a fork. It opens the
 * device itself, when its part begins, so that its context disturbs no figure before. */
struct other_process;
/* Its program: work, with memory of both processes, which is 0 at first. It ends with this one. */
struct other_process *other_process_new(unsigned ordinal, size_t shared_bytes,
                                        void (*work)(void *shared));
/* Lets it open the device, and returns the memory of both when it has. NULL: it has not within 40
 * s, which is printed. */
void *other_process_begin(struct other_process *o);
/* Waits until *at is at least value. False: not within limit_ns, or it has ended. */
bool other_process_await(struct other_process *o, const _Atomic uint32_t *at, uint32_t value,
                         uint64_t limit_ns);
/* In the other process: waits for a value that this one writes. */
void other_process_await_parent(const _Atomic uint32_t *at, uint32_t value);
void other_process_free(struct other_process *o); /* ends it; takes NULL */

/* Flags between the processes. Calls _exit where a wait for a flag of this process does not end. */
struct other_process *flags_process_new(unsigned ordinal);
void bench_flags(struct other_process *o);
/* Export and import. */
struct other_process *sharing_process_new(unsigned ordinal);
void bench_sharing(struct other_process *o);

#endif
