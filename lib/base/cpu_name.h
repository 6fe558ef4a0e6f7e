/* The processor's model name. */
#ifndef MOED_BASE_CPU_NAME_H
#define MOED_BASE_CPU_NAME_H

#include <stddef.h>

/* One line of at most size - 1 bytes, from the system; "an unnamed CPU" where it has no name. */
void cpu_name(char *out, size_t size);

#endif
