/* Files that are read again when they have changed while the server runs: certificates and API
 * keys. A file may be written in place, or replaced, also by a symbolic link (certbot, secrets of
 * Kubernetes). One thread. */
#ifndef MOED_HTTP_RENEWAL_H
#define MOED_HTTP_RENEWAL_H

#include "base/error.h"

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define RENEWAL_FILES       2
#define RENEWAL_INTERVAL_MS 2000
#define RENEWAL_RETRY_MS    60000
#define RENEWAL_DIRECTORIES 16

struct file_version {
    dev_t device;
    ino_t inode;
    off_t bytes;
    struct timespec modified, changed;
};

struct renewal {
    const char *paths[RENEWAL_FILES]; /* NULL: none; borrowed */
    struct file_version read[RENEWAL_FILES], seen[RENEWAL_FILES];
    uint64_t next_ns;               /* when to look */
    uint64_t retry_ns;              /* when to read files that could not be read; 0: never */
    char failure[ERROR_TEXT_BYTES]; /* why not; empty: nothing has failed */
};

/* Notes the files as they are; the caller reads them after that. b may be NULL; a NULL: there is
 * nothing to read again, ever. */
void renewal_begin(struct renewal *r, const char *a, const char *b);
/* True: they have changed since they were read, and did not change between the last two looks,
 * which are RENEWAL_INTERVAL_MS apart: what writes two files has an end. They count as read then.
 * Also true RENEWAL_RETRY_MS after a failure that may pass. */
bool renewal_is_due(struct renewal *r);
/* They were read and are in use. */
void renewal_succeeded(struct renewal *r);
/* They could not be used. ERROR_FORMAT and ERROR_USAGE, what they hold or their mode, wait for
 * another change; other failures may pass. True: the text is not that of the failure before. */
bool renewal_failed(struct renewal *r, const struct error *e);
/* They are read no more. */
void renewal_end(struct renewal *r);

/* The directories whose files a confined process must be able to read to read its files again. */
struct renewal_directories {
    char paths[RENEWAL_DIRECTORIES][PATH_MAX];
    size_t count;
    char fixed[PATH_MAX]; /* a link to a directory that must stay as it is: the directories do not
                             cover what it may lead to next; empty: none */
};
/* Those of the path, of the file that its symbolic links lead to, and of each link on the way.
 * False: one of them is not for such files alone, as the home directory is not, or there is no
 * file. */
bool renewal_directories_find(const char *path, struct renewal_directories *out);

#endif
