/* Paths that lead to one file or folder. */
#ifndef MOED_BASE_SAME_FILE_H
#define MOED_BASE_SAME_FILE_H

#include <stdbool.h>
#include <sys/stat.h>

/* False, too, where there is none. Follows links. */
static inline bool same_file(const char *a, const char *b)
{
    struct stat of_a, of_b;
    return stat(a, &of_a) == 0 && stat(b, &of_b) == 0 && of_a.st_dev == of_b.st_dev &&
           of_a.st_ino == of_b.st_ino;
}

#endif
