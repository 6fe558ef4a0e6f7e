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

#endif
