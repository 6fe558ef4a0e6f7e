/* For the tests of lib/sched's assigners (test_sched_assign*.c): the number of assigners, a layer's
 * costs, the expected time and parts of a plan. */
#ifndef MOED_TESTS_ASSIGN_COSTS_H
#define MOED_TESTS_ASSIGN_COSTS_H

#include "sched/policy.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

enum { N_ASSIGNERS = ASSIGN_OPTIMAL };

/* The same costs with and without contention. */
static inline struct sched_costs costs(double load, double device, double device_token, double cpu,
                                       double cpu_token)
{
    return (struct sched_costs){load,      load, device, device_token, cpu, cpu_token, cpu,
                                cpu_token, 0,    0};
}

static inline void expect_seconds(double got, double expected)
{
    if (fabs(got - expected) > 1e-9 * (1 + fabs(expected)))
        fail_msg("%.12g seconds, not %.12g", got, expected);
}

#endif
