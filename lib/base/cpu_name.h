/* What the processor calls itself. */
#ifndef MOED_BASE_CPU_NAME_H
#define MOED_BASE_CPU_NAME_H

#include <stddef.h>

/* One line of at most size - 1 bytes, as the system has it; "an unnamed CPU" where it does not say. */
void cpu_name(char *out, size_t size);

#endif
