/* Files that are read again when they have changed while the server runs: certificates and API
 * keys. A file may be written in place, or replaced, also by a symbolic link (certbot, secrets of
 * Kubernetes). One thread. */
#ifndef MOED_HTTP_RENEWAL_H
#define MOED_HTTP_RENEWAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define RENEWAL_FILES       2
#define RENEWAL_INTERVAL_MS 2000

struct file_version {
    dev_t device;
    ino_t inode;
    off_t bytes;
    struct timespec modified, changed;
};

struct renewal {
    const char *paths[RENEWAL_FILES]; /* NULL: none; borrowed */
    struct file_version read[RENEWAL_FILES], seen[RENEWAL_FILES];
    uint64_t next_ns; /* when to look */
};

/* Notes the files as they are; the caller reads them after that. b may be NULL; a NULL: there is
 * nothing to read again, ever. */
void renewal_begin(struct renewal *r, const char *a, const char *b);
/* True: they have changed since they were read, and did not change between the last two looks,
 * which are RENEWAL_INTERVAL_MS apart: what writes two files has an end. They count as read then.
 */
bool renewal_is_due(struct renewal *r);
/* The directory whose files a confined process must be able to read to read `path` again: of the
 * path (target false), or of the file that its symbolic links lead to. NULL, with nothing in out:
 * it has none that is for such files alone, as the home directory is not. out: PATH_MAX bytes. */
const char *renewal_directory(const char *path, bool target, char *out);

#endif
