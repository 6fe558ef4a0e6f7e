/* The memory of a process that holds users' prompts, keys and answers. */
#ifndef MOED_CONFINE_MEMORY_H
#define MOED_CONFINE_MEMORY_H

/* From now on the process leaves no core file, and only root may trace it or open its memory,
 * descriptors and maps in /proc. */
void confine_memory(void);

#endif
