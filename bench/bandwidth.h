/* What the machine's memory gives: a plain read of memory by several threads at once. It is the
 * yardstick beside which moed-bench puts the bytes of weights that decoding reads. */
#ifndef MOED_BENCH_BANDWIDTH_H
#define MOED_BENCH_BANDWIDTH_H

#include "base/error.h"

struct bandwidth;

/* Allocates the memory that is read: 1 GiB, less where little is available, and touches all of it.
 */
enum error_code bandwidth_new(unsigned n_threads, struct bandwidth **out, struct error *e);
void bandwidth_free(struct bandwidth *b); /* takes NULL */

/* Bytes a second of one pass over the memory, all threads at once, from the moment that the first
 * one starts until the last one is done. */
enum error_code bandwidth_measure(struct bandwidth *b, double *bytes_per_s, struct error *e);

#endif
