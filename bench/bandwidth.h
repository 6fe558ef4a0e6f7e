/* The machine's read bandwidth: a plain read of memory by several threads at once. moed-bench
 * compares the bytes of weights that decoding reads with it. */
#ifndef MOED_BENCH_BANDWIDTH_H
#define MOED_BENCH_BANDWIDTH_H

#include "base/error.h"

struct bandwidth;

/* Allocates the memory to read (1 GiB; a quarter of what is available, if that is less) and touches
 * all of it. */
enum error_code bandwidth_new(unsigned n_threads, struct bandwidth **out, struct error *e);
void bandwidth_free(struct bandwidth *b); /* takes NULL */

/* Bytes a second of all threads together, from the start of the first thread until the end of the
 * last. */
enum error_code bandwidth_measure(struct bandwidth *b, double *bytes_per_s, struct error *e);

#endif
