/* Memory that two processes share by handles, as memd's arena; see bench.h.
 *
 * This process exports half of the free memory, first as one allocation and then as many, as memd
 * does. The other process imports it. */
#include "bench/device/bench.h"

#include "base/clock.h"
#include "ipc/arena_layout.h"

#include <stdio.h>

/* Others report minutes for very large allocations. */
#define IMPORT_NS 40000000000ull
#define UNIT      (2u << 20) /* the driver's unit of allocations: a handle names whole units */

/* In memory of both processes. One writer a field. */
struct shared {
    struct device_handle handles[ARENA_EXTENTS]; /* ours, before `exported` */
    _Atomic uint32_t n;                          /* of them; ours, before `exported` */
    _Atomic uint32_t exported;                   /* ours: how often */
    _Atomic uint32_t imported_us; /* the other's, before `imported`: of all of them together */
    _Atomic uint32_t imported;    /* the other's: how often; it has closed them again */
};
enum { TIMES = 2 };

static void import_work(void *shared)
{
    struct shared *s = shared;
    struct error e;
    void *memory[ARENA_EXTENTS];
    for (uint32_t time = 1; time <= TIMES; time++) {
        other_process_await_parent(&s->exported, time);
        uint32_t n = atomic_load(&s->n);
        uint64_t since = clock_ns();
        for (uint32_t i = 0; i < n; i++)
            if (module->import_memory(device, &s->handles[i], &memory[i], &e))
                fail(&e);
        atomic_store(&s->imported_us, (uint32_t)((clock_ns() - since) / 1000 + 1));
        for (uint32_t i = 0; i < n; i++)
            module->close_imported(device, memory[i]);
        atomic_store(&s->imported, time);
    }
    module->close(device);
}

struct other_process *sharing_process_new(unsigned ordinal)
{
    return other_process_new(ordinal, sizeof(struct shared), import_work);
}

/* Exports n allocations of `bytes` each for the time-th time; returns the seconds of their import;
 * 0: it has failed, which is printed. */
static double share(struct other_process *o, struct shared *s, uint32_t time, uint32_t n,
                    size_t bytes)
{
    struct error e;
    void *memory[ARENA_EXTENTS];
    char what[64];
    double imported = 0;
    for (uint32_t i = 0; i < n; i++)
        memory[i] = allocate(bytes);
    uint64_t since = clock_ns();
    for (uint32_t i = 0; i < n; i++)
        if (module->export_memory(device, memory[i], &s->handles[i], &e))
            fail(&e);
    snprintf(what, sizeof what, "exporting %u of %.1f GB", n, (double)bytes * 1e-9);
    print_time(what, (double)(clock_ns() - since) * 1e-9, 0);
    atomic_store(&s->n, n);
    atomic_store(&s->exported, time);
    if (other_process_await(o, &s->imported, time, IMPORT_NS)) {
        imported = atomic_load(&s->imported_us) * 1e-6;
        snprintf(what, sizeof what, "importing %u of %.1f GB", n, (double)bytes * 1e-9);
        print_time(what, imported, 0);
        if (!simulated)
            printf("figure: importing %u of %.1f GB %.2f ms\n", n, (double)bytes * 1e-9,
                   imported * 1e3);
    } else {
        printf("another process does not import %u of %.1f GB within %d s, or has failed\n", n,
               (double)bytes * 1e-9, (int)(IMPORT_NS / 1000000000u));
    }
    for (uint32_t i = 0; i < n && imported; i++) /* else the release may wait for the import */
        module->release(device, memory[i]);
    return imported;
}

void bench_sharing(struct other_process *o)
{
    struct device_facts facts;
    struct shared *s;
    print_heading("sharing memory with another process");
    if (!(s = other_process_begin(o)))
        return;
    module->facts(device, &facts);
    size_t half = simulated ? ARENA_EXTENTS * (size_t)UNIT : facts.free_bytes / 2,
           extent = half / ARENA_EXTENTS / UNIT * UNIT;
    if (extent && share(o, s, 1, 1, extent * ARENA_EXTENTS))
        share(o, s, 2, ARENA_EXTENTS, extent);
}
