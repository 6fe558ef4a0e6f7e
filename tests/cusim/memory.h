/* cusim: allocations of device memory, own and imported. Call all but memory_total with state_lock
 * held. */
#ifndef CUSIM_MEMORY_H
#define CUSIM_MEMORY_H

#include <functional>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Names an allocation to other processes: a file that the exporter has open. */
struct memory_name {
    uint32_t magic;
    int32_t pid, fd, device;
    uint64_t inode, offset, bytes;
};

struct allocation {
    void *memory;
    size_t bytes;
    off_t offset; /* in the exporter's file */
    int device;
    unsigned n_opened; /* imported: how many times */
    bool exported;
    struct memory_name name; /* of an imported one */
};

unsigned long long memory_total();
/* Maps a range of a file at a new address; NULL: the mapping failed. */
void *memory_map(int fd, off_t offset, size_t bytes);
/* Makes the address unreadable for ever. */
void memory_unmap(void *memory, size_t bytes);
struct allocation *memory_find(const void *memory); /* the allocation that begins there */
struct allocation *memory_find_if(const std::function<bool(const struct allocation &)> &wanted);
void memory_add(void *memory, const struct allocation &a);
void memory_remove(void *memory);
int memory_file();
/* Ends the process with a message if the device's memory is still allocated or imported. */
void memory_check_freed(int device);

#endif
