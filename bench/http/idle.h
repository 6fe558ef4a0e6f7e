/* What streams cost that wait for their next token. */
#ifndef MOED_BENCH_HTTP_IDLE_H
#define MOED_BENCH_HTTP_IDLE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct idle_plan {
    unsigned port;
    pid_t http, worker;
    uint32_t streams, wait_s;
};

struct idle_cost {
    double bytes;       /* of resident memory, a stream */
    double cpu_percent; /* of a core, while all wait */
};

/* Opens the streams, stops the worker with SIGSTOP for wait_s, and lets it go on. False: said why
 * on standard error. */
bool idle_measure(const struct idle_plan *plan, struct idle_cost *out);

#endif
