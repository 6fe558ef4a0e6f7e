/* Available memory; see machine_memory.h. */
#include "base/machine_memory.h"

#include "base/cgroup_memory.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#ifndef MADV_POPULATE_WRITE /* Linux 5.14; older C library headers lack it */
#define MADV_POPULATE_WRITE 23
#endif

/* A number of /proc/meminfo, in its unit. False: there is no such name. */
static bool meminfo_number(const char *name, uint64_t *out)
{
    FILE *f = fopen("/proc/meminfo", "re");
    if (f == NULL)
        return false;
    char line[256];
    unsigned long long n = 0;
    bool found = false;
    size_t length = strlen(name);
    while (!found && fgets(line, sizeof line, f) != NULL)
        found = strncmp(line, name, length) == 0 && sscanf(line + length, ": %llu", &n) == 1;
    fclose(f);
    *out = n;
    return found;
}

static uint64_t machine_bytes(void)
{
    uint64_t kib;
    return meminfo_number("MemAvailable", &kib) ? kib << 10 : UINT64_MAX;
}

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

uint64_t memory_available_bytes(void)
{
    return least(machine_bytes(), cgroup_memory_available(""));
}

uint64_t memory_promised_bytes(const struct cgroup_promise *promises, unsigned n)
{
    uint64_t machine = machine_bytes(), sum = 0;
    for (unsigned i = 0; i < n; i++)
        sum += promises[i].bytes;
    uint64_t available = least(machine, cgroup_memory_available(""));
    uint64_t left =
        least(machine > sum ? machine - sum : 0, cgroup_memory_unpromised("", promises, n));
    return available > left ? available - left : 0;
}

enum error_code memory_populate(void *at, size_t bytes, struct error *e)
{
    if (madvise(at, bytes, MADV_POPULATE_WRITE) == 0 ||
        errno == EINVAL) /* EINVAL: an older kernel */
        return ERROR_OK;
    return error_set(e, ERROR_MEMORY,
                     "no memory for %zu bytes of weights: %m; end other programs or "
                     "take a smaller quantisation",
                     bytes);
}

bool memory_can_populate(void)
{
    return madvise(NULL, 0, MADV_POPULATE_WRITE) == 0;
}

uint64_t memory_reserved_bytes(uint64_t *page_bytes)
{
    uint64_t kib, free_pages, promised; /* promised: to mappings that have not touched them yet */
    *page_bytes = 0;
    if (!meminfo_number("Hugepagesize", &kib) || !meminfo_number("HugePages_Free", &free_pages) ||
        !meminfo_number("HugePages_Rsvd", &promised))
        return 0;
    *page_bytes = kib << 10;
    return free_pages > promised ? (free_pages - promised) * *page_bytes : 0;
}

enum memory_huge memory_huge_parse(const char *text)
{
    static const struct {
        const char *word;
        enum memory_huge huge;
    } words[] = {{"[advise]", MEMORY_HUGE_ASKED},
                 {"[always]", MEMORY_HUGE_ALWAYS},
                 {"[within_size]", MEMORY_HUGE_ALWAYS},
                 {"[force]", MEMORY_HUGE_ALWAYS}};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strstr(text, words[i].word))
            return words[i].huge;
    return MEMORY_HUGE_NEVER;
}

enum memory_huge memory_huge_shared(void)
{
    char text[128] = "";
    FILE *f = fopen("/sys/kernel/mm/transparent_hugepage/shmem_enabled", "re");
    if (f == NULL)
        return MEMORY_HUGE_NEVER;
    char *line = fgets(text, sizeof text, f);
    fclose(f);
    return line ? memory_huge_parse(text) : MEMORY_HUGE_NEVER;
}

uint64_t memory_huge_bytes(const void *at)
{
    FILE *f = fopen("/proc/self/smaps", "re");
    if (f == NULL)
        return 0;
    char line[512];
    unsigned long long start, end, kib = 0;
    bool inside = false, found = false;
    while (!found && fgets(line, sizeof line, f) != NULL) {
        if (sscanf(line, "%llx-%llx ", &start, &end) == 2)
            inside = (uintptr_t)at >= start && (uintptr_t)at < end;
        else
            found = inside && sscanf(line, "ShmemPmdMapped: %llu kB", &kib) == 1;
    }
    fclose(f);
    return found ? (uint64_t)kib << 10 : 0;
}
