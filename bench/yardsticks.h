/* A machine's limits, measured at the same moment as a kernel: plain reading and bare
 * multiply-adds. Each function is one thread's part; bench/kernels.c runs them on as many threads
 * as the kernels. */
#ifndef MOED_BENCH_YARDSTICKS_H
#define MOED_BENCH_YARDSTICKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Reads all the memory as fast as we know how; returns a sum that depends on it. */
uint64_t yardstick_read(const uint8_t *memory, size_t bytes);

/* Multiply-adds on registers alone, by a build's best instruction for a kind of weight. */
struct multiply_adds {
    const char *instruction;
    double flop;      /* of one call; a multiplication and an addition count as two */
    int (*run)(void); /* the value keeps the compiler from dropping the work */
};
/* kernels: a build's name. NULL for "portable", which has no instruction of its own. */
const struct multiply_adds *yardstick_multiply_adds(const char *kernels, bool quantised);
/* The instruction of a build of kernels/bf16.h; only if it is available. */
const struct multiply_adds *yardstick_multiply_adds_bf16(const char *instruction);

#endif
