/* A file's bytes, mapped to be read. Who maps a file that others may cut short while it is read gets SIGBUS. */
#ifndef MOED_BASE_FILE_MAP_H
#define MOED_BASE_FILE_MAP_H

#include "base/error.h"

#include <stdint.h>

struct file_map {
    const uint8_t *data; /* page-aligned */
    uint64_t bytes;
    int fd; /* open for reading, for who would rather read than touch the mapping */
};

/* expected: what the file is to be, "a GGUF model file", for the errors: ERROR_NOT_FOUND, ERROR_FORMAT for an empty file,
 * ERROR_IO for one that cannot be read or is no regular file, ERROR_MEMORY. */
enum error_code file_map_open(const char *path, const char *expected, struct file_map *out,
                              struct error *e);
void file_map_close(struct file_map *m); /* one of zeros is nothing */

#endif
