/* cusim: races in the dynamic shared memory of a block. Two accesses to a byte, at least one of
 * them a write, by different threads, are a race unless __syncthreads, or a __syncwarp of both, is
 * between them. Shuffles and votes order no memory. Builds with sanitizers do not look for them. */
#ifndef CUSIM_RACES_H
#define CUSIM_RACES_H

#include <stddef.h>
#include <stdint.h>

#ifdef CUSIM_NO_RACES
inline void races_begin_block(const void *, size_t) {}
inline void races_block_barrier() {}
inline void races_warp_barrier(unsigned, unsigned) {}
inline void races_read(unsigned, const void *, size_t) {}
inline void races_write(unsigned, const void *, size_t) {}
#else
/* A block begins; its shared memory. 0 bytes: no block runs. */
void races_begin_block(const void *shared, size_t bytes);
/* All threads of the block are at a barrier. */
void races_block_barrier();
/* These lanes of the warp are at a barrier. */
void races_warp_barrier(unsigned warp, unsigned mask);

/* An access of a thread, to any memory. A race ends the process with a message. The kernels' own
 * accesses come through the compiler's calls (races.cpp). */
void races_read(unsigned thread, const void *p, size_t bytes);
void races_write(unsigned thread, const void *p, size_t bytes);
#endif

#endif
