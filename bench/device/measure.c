/* Measuring and printing; see bench.h. */
#include "bench/device/bench.h"

#include "base/clock.h"

#include <stdio.h>
#include <stdlib.h>

enum { MOST_RUNS = 15 };

const struct device_module *module;
struct device *device;
struct device_stream *stream;
bool simulated;
struct bounds bounds;
double measure_seconds = 0.1;

_Noreturn void fail(const struct error *e)
{
    fflush(stdout);
    fprintf(stderr, "bench-device: %s\n", e->text);
    exit(1);
}

void finish(void)
{
    struct error e;
    if (module->finish(stream, &e))
        fail(&e);
}

void *allocate(size_t bytes)
{
    struct error e;
    void *memory;
    if (module->allocate(device, bytes, &memory, &e))
        fail(&e);
    return memory;
}

void *allocate_filled(size_t bytes, uint8_t byte)
{
    void *memory = allocate(bytes);
    module->fill(stream, memory, byte, bytes);
    return memory;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double run(void (*work)(void *arg, unsigned turn), void *arg, unsigned calls, unsigned *turn)
{
    uint64_t since = clock_ns();
    for (unsigned i = 0; i < calls; i++)
        work(arg, (*turn)++);
    finish();
    return (double)(clock_ns() - since) * 1e-9;
}

double measure(void (*work)(void *arg, unsigned turn), void *arg)
{
    double runs[MOST_RUNS];
    unsigned calls = 1, turn = 0;
    run(work, arg, 1, &turn);
    if (simulated)
        return 1;
    while (run(work, arg, calls, &turn) < measure_seconds / MOST_RUNS && calls < 1u << 20)
        calls *= 2;
    for (unsigned r = 0; r < MOST_RUNS; r++)
        runs[r] = run(work, arg, calls, &turn) / calls;
    qsort(runs, MOST_RUNS, sizeof *runs, by_size);
    return runs[MOST_RUNS / 2];
}

void print_heading(const char *text)
{
    printf("\n%-46s %16s %16s %8s\n", text, "measured", "bound", "of it");
}

static void print_row(const char *what, double value, double bound, double share, const char *unit)
{
    if (simulated)
        printf("%-46s %16s\n", what, "ran");
    else if (bound > 0)
        printf("%-46s %11.1f %-4s %11.1f %-4s %6.1f %%\n", what, value, unit, bound, unit,
               100 * share);
    else
        printf("%-46s %11.1f %-4s\n", what, value, unit);
}

void print_rate(const char *what, double bytes, double s, double bound_per_s)
{
    double rate = bytes / s;
    print_row(what, rate * 1e-9, bound_per_s * 1e-9, bound_per_s > 0 ? rate / bound_per_s : 0,
              "GB/s");
}

void print_time(const char *what, double s, double bound_s)
{
    print_row(what, s * 1e6, bound_s * 1e6, bound_s / s, "us");
}
