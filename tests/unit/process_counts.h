/* Counts what this process has open, for tests that check for leaks. */
#ifndef MOED_TESTS_PROCESS_COUNTS_H
#define MOED_TESTS_PROCESS_COUNTS_H

#include <dirent.h>

static inline int count_entries(const char *path)
{
    int n = 0;
    DIR *d = opendir(path);
    for (struct dirent *entry; d && (entry = readdir(d));)
        n += entry->d_name[0] != '.';
    if (d)
        closedir(d);
    return n;
}

static inline int open_fds(void)
{
    return count_entries("/proc/self/fd");
}

static inline int running_threads(void)
{
    return count_entries("/proc/self/task");
}

#endif
