/* How much memory can still be had. */
#ifndef MOED_BASE_MACHINE_MEMORY_H
#define MOED_BASE_MACHINE_MEMORY_H

#include <stdint.h>

/* Bytes that this process can still allocate: the machine's available memory, or less where its cgroup
 * limits it. UINT64_MAX where neither can be told. */
uint64_t memory_available_bytes(void);

#endif
