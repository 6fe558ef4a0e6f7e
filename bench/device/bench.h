/* What the parts of bench-device share: the open device, and how a figure is measured and printed.
 *
 * A row of the table is what was measured, the figure, the bound that explains it, and the share of
 * the bound that was reached. On a simulated device everything runs once and prints no speed. */
#ifndef MOED_BENCH_DEVICE_BENCH_H
#define MOED_BENCH_DEVICE_BENCH_H

#include "base/error.h"
#include "device/module.h"

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

/* The other process of bench_sharing, made before this process opens the device: a context does not
 * survive a fork. The other process opens the device itself. */
struct other_process;
struct other_process *other_process_new(unsigned ordinal);
/* Export, import, and flags between the processes. only_flags: of a small allocation. Ends the
 * other process. */
void bench_sharing(struct other_process *o, bool only_flags);
void other_process_free(struct other_process *o); /* takes NULL */

#endif
