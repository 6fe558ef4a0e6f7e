/* The bytes that are allocated of each device; see usage.h.
 *
 * The shared file has a table of processes. A process takes an entry that nobody has, or that of a
 * process which is gone: so the memory of a killed process is free, as a driver has it. The file's
 * lock guards the table. */
#include "usage.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <unistd.h>

namespace
{
enum { PROCESSES = 64, DEVICES = 8 };

struct entry {
    pid_t pid; /* 0: nobody's */
    unsigned long long bytes[DEVICES];
};

int file = -1;
entry *table; /* [PROCESSES], or one entry where no file is shared */
entry *own;

/* Also of a zombie: a driver frees a process's memory when it ends. */
bool is_gone(pid_t pid)
{
    char path[64], line[256];
    if (kill(pid, 0) != 0 && errno == ESRCH)
        return true;
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    int stat = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = stat < 0 ? 0 : read(stat, line, sizeof line - 1);
    if (stat >= 0)
        close(stat);
    line[n > 0 ? n : 0] = 0;
    const char *name_end = strrchr(line, ')'); /* a name may contain one */
    return name_end != nullptr && strncmp(name_end, ") Z", 3) == 0;
}

entry *find_own(entry *t)
{
    for (entry *e = t; e < t + PROCESSES; e++)
        if (e->pid == 0 || is_gone(e->pid)) {
            *e = {};
            e->pid = getpid();
            return e;
        }
    fprintf(stderr, "cusim: more than %d processes share MOED_CUSIM_SHARED\n", (int)PROCESSES);
    abort();
}

void open_table()
{
    static entry alone;
    const char *path = getenv("MOED_CUSIM_SHARED");
    if (path == nullptr || *path == 0) {
        own = table = &alone;
        return;
    }
    size_t bytes = PROCESSES * sizeof(entry);
    file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    void *map = file < 0 || ftruncate(file, (off_t)bytes) != 0
                    ? MAP_FAILED
                    : mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (map == MAP_FAILED) {
        fprintf(stderr, "cusim: MOED_CUSIM_SHARED=%s cannot be used\n", path);
        abort();
    }
    table = (entry *)map;
    flock(file, LOCK_EX);
    own = find_own(table);
    flock(file, LOCK_UN);
}

unsigned long long sum(int device)
{
    unsigned long long bytes = 0;
    if (file < 0)
        return own->bytes[device % DEVICES];
    for (const entry *e = table; e < table + PROCESSES; e++)
        if (e->pid != 0 && !is_gone(e->pid))
            bytes += e->bytes[device % DEVICES];
    return bytes;
}

/* Holds the file's lock. */
struct locked {
    locked()
    {
        if (table == nullptr)
            open_table();
        if (file >= 0)
            flock(file, LOCK_EX);
    }
    ~locked()
    {
        if (file >= 0)
            flock(file, LOCK_UN);
    }
};
} // namespace

bool usage_take(int device, unsigned long long bytes, unsigned long long most)
{
    locked l;
    if (sum(device) + bytes > most)
        return false;
    own->bytes[device % DEVICES] += bytes;
    return true;
}

void usage_give(int device, unsigned long long bytes)
{
    locked l;
    own->bytes[device % DEVICES] -= bytes;
}

unsigned long long usage_of(int device)
{
    locked l;
    return sum(device);
}
