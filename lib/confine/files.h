/* The files that a process may open, by landlock: everything beneath the paths that are allowed,
 * and nothing else. Also no TCP connection, no abstract unix socket and no signal to other
 * processes, where the kernel can forbid them (landlock's versions 4 and 6). Descriptors that are
 * open stay open. Kernels without landlock leave all files; the process says so in its log.
 *
 *     struct confine_files f;
 *     confine_files_begin(&f);
 *     confine_files_allow(&f, path, CONFINE_READ);
 *     confine_files_end(&f);
 *
 * The kernel restricts the calling thread and those that it starts from then on, so call it while
 * the process has no other. What landlock does not cover, such as the modes of files, is the task
 * of the filter of system calls (calls.h). */
#ifndef MOED_CONFINE_FILES_H
#define MOED_CONFINE_FILES_H

#include <stdbool.h>

enum confine_access {
    CONFINE_READ = 1,    /* files, and lists of directories */
    CONFINE_WRITE = 2,   /* write, cut, make, rename and remove files */
    CONFINE_SOCKETS = 4, /* make unix sockets, and remove files */
};

struct confine_files {
    int ruleset; /* -1: nothing is restricted */
};

void confine_files_begin(struct confine_files *f);
/* access: some of the enum. A path that does not exist is not allowed; NULL: no effect. */
void confine_files_allow(struct confine_files *f, const char *path, unsigned access);
/* What every daemon needs: its runtime directory, /proc, /sys, /dev/null, the system's libraries.
 */
void confine_files_allow_daemon(struct confine_files *f, const char *run);
void confine_files_end(struct confine_files *f);

/* Whether this kernel has landlock. */
bool confine_files_possible(void);

#endif
