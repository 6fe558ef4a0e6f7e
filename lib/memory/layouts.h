/* The versions of everything that the processes of a deployment share. Processes of two builds may
 * work together exactly if all of these are equal: memd compares them when a process asks for a
 * lease, `moed upgrade` before it replaces anything. */
#ifndef MOED_MEMORY_LAYOUTS_H
#define MOED_MEMORY_LAYOUTS_H

#include <stddef.h>
#include <stdint.h>

/* All of this build's versions, as one number. */
uint64_t layouts_number(void);
/* "host pool 5 (here 6), KV pool 1 (here 2)": what another build has otherwise. Empty: nothing.
 * Returns text. */
const char *layouts_difference(uint64_t other, char *text, size_t bytes);

#endif
