/* A directory for the files of one test program, removed at the end with the files in it. */
#ifndef MOED_TESTS_TEMPORARY_DIRECTORY_H
#define MOED_TESTS_TEMPORARY_DIRECTORY_H

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char directory[64];

static inline int make_directory(void **state)
{
    (void)state;
    strcpy(directory, "/tmp/moed-test-XXXXXX");
    return mkdtemp(directory) ? 0 : -1;
}

static inline int remove_directory(void **state)
{
    (void)state;
    DIR *d = opendir(directory);
    struct dirent *entry;
    while (d && (entry = readdir(d)))
        unlinkat(dirfd(d), entry->d_name, 0);
    if (d)
        closedir(d);
    return rmdir(directory); /* fails where a directory is left */
}

/* The path of `name` in the directory. The last two results stay valid. */
static inline const char *in_directory(const char *name)
{
    static char path[2][256];
    static int turn;
    turn = !turn;
    snprintf(path[turn], sizeof path[turn], "%s/%s", directory, name);
    return path[turn];
}

#endif
