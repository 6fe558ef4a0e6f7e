/* cusim: the limits of the simulated device: compute capability 8.0, with the shared memory of 8.6,
 * which is smaller. */
#ifndef CUSIM_LIMITS_H
#define CUSIM_LIMITS_H

enum {
    CAPABILITY = 80, /* unless MOED_CUSIM_CAPABILITY says another; the limits stay */
    MULTIPROCESSORS = 16,
    BLOCK_THREADS = 1024,
    BLOCK_XY = 1024,
    BLOCK_Z = 64,
    GRID_X = 2147483647,
    GRID_YZ = 65535,
    SHARED_BYTES = 48 << 10,         /* of a block, unless the kernel's attribute allows more */
    SHARED_BYTES_OPTIN = 99 << 10,   /* the most that the attribute may allow */
    SHARED_BYTES_RESERVED = 1 << 10, /* of each block, by the system */
    SM_SHARED_BYTES = 100 << 10,
    SM_THREADS = 2048,
    SM_BLOCKS = 32,
    SM_REGISTERS = 65536,
    MEMORY_ALIGNMENT = 256
};

#endif
