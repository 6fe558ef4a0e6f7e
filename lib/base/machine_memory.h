/* How much memory can still be had. */
#ifndef MOED_BASE_MACHINE_MEMORY_H
#define MOED_BASE_MACHINE_MEMORY_H

#include "base/error.h"

#include <stddef.h>
#include <stdint.h>

/* Bytes that this process can still allocate: the machine's available memory, or less where its cgroup
 * limits it. UINT64_MAX where neither can be told. */
uint64_t memory_available_bytes(void);

/* Make the pages of a mapping (whole ones), many with one system call: a fault for each costs more than writing it, and memory
 * that is not there is an error here and not a killed process. Where the kernel cannot, they are made when
 * they are touched. */
enum error_code memory_populate(void *at, size_t bytes, struct error *e);

/* Bytes of huge pages (of the default size) that are reserved and free, and that size; 0: none, or no such pages. They are
 * no part of memory_available_bytes. */
uint64_t memory_reserved_bytes(uint64_t *page_bytes);

/* Whether shared memory may lie in transparent huge pages. */
enum memory_huge {
    MEMORY_HUGE_NEVER,  /* /sys/kernel/mm/transparent_hugepage/shmem_enabled forbids them, or there is none */
    MEMORY_HUGE_ASKED,  /* "advise": where madvise asks for them */
    MEMORY_HUGE_ALWAYS, /* "always", "within_size", "force" */
};
enum memory_huge memory_huge_shared(void);

/* The choice of a file such as shmem_enabled, the word in brackets: "always [advise] never". */
enum memory_huge memory_huge_parse(const char *text);

/* Of a mapping of shared memory, how many bytes lie in transparent huge pages, 0 where it cannot be told. */
uint64_t memory_huge_bytes(const void *at);

#endif
