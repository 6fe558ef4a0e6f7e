/* A file mapped for reading. If another process cuts the file short, reading the mapping raises
 * SIGBUS. */
#ifndef MOED_BASE_FILE_MAP_H
#define MOED_BASE_FILE_MAP_H

#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* What changes when a file is written, as the kernel reports it. */
struct file_identity {
    dev_t device;
    ino_t inode;
    int64_t bytes, modified_ns;
};

struct file_map {
    const uint8_t *data; /* page-aligned; NULL: not mapped */
    uint64_t bytes;      /* 0: not open */
    int fd;              /* open for reading, for callers that use read and not the mapping */
    struct file_identity identity; /* when it was opened */
};

/* expected: what the file should be, for error texts: "a GGUF model file". ERROR_NOT_FOUND;
 * ERROR_FORMAT: an empty file; ERROR_IO: not readable, or no regular file; ERROR_MEMORY. */
enum error_code file_map_open(const char *path, const char *expected, struct file_map *out,
                              struct error *e);
/* The same in two steps: opening, and mapping what is open. */
enum error_code file_map_open_only(const char *path, const char *expected, struct file_map *out,
                                   struct error *e);
enum error_code file_map_map(struct file_map *m, const char *path, struct error *e);
/* Whether the file was written or cut since then. A write through another mapping may show late.
 * UNKNOWN: the kernel does not say, as on a network file system whose server is away; errno. */
enum file_change { FILE_UNCHANGED, FILE_CHANGED, FILE_CHANGE_UNKNOWN };
enum file_change file_map_change(const struct file_map *m);
void file_map_close(struct file_map *m); /* a zeroed one: no effect */

#endif
