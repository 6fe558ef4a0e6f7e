/* The machine's available memory and its huge pages. */
#ifndef MOED_BASE_MACHINE_MEMORY_H
#define MOED_BASE_MACHINE_MEMORY_H

#include "base/cgroup_memory.h"
#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes that this process can still allocate: the machine's available memory, or less where its
 * cgroup limits it. UINT64_MAX where neither is known. */
uint64_t memory_available_bytes(void);
/* By how much the promises lessen that. In the machine's memory all count; in a limit of a cgroup
 * those of its processes. */
uint64_t memory_promised_bytes(const struct cgroup_promise *promises, unsigned n);

/* Allocate all pages of a mapping (whole pages) with one system call. A page fault for each would
 * cost more than writing the page, and where memory is short this is an error instead of a killed
 * process. A kernel that does not support it allocates the pages when they are touched. */
enum error_code memory_populate(void *at, size_t bytes, struct error *e);
/* False: it is such a kernel. */
bool memory_can_populate(void);

/* Bytes of huge pages (of the default size) that are reserved and free, and that size; 0: none. Not
 * part of memory_available_bytes. */
uint64_t memory_reserved_bytes(uint64_t *page_bytes);

/* Whether the system backs shared memory with transparent huge pages. */
enum memory_huge {
    MEMORY_HUGE_NEVER,  /* /sys/kernel/mm/transparent_hugepage/shmem_enabled forbids it or does not
                           exist */
    MEMORY_HUGE_ASKED,  /* "advise": where a process requests it with madvise */
    MEMORY_HUGE_ALWAYS, /* "always", "within_size", "force" */
};
enum memory_huge memory_huge_shared(void);

/* Parse a file such as shmem_enabled: the choice is the word in brackets, "always [advise] never".
 */
enum memory_huge memory_huge_parse(const char *text);

/* How many bytes of a mapping of shared memory lie in transparent huge pages; 0 where it is not
 * known. */
uint64_t memory_huge_bytes(const void *at);

#endif
