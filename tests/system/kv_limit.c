/* Sets a worker's limit of the KV cache from outside, in memd's memory. Tests use it for limits and
 * moments that memd itself would not choose.
 *   kv-limit PID BYTES|max      PID: memd's
 * Exit code 77: this machine does not allow a process to write in another's memory. */
#include "ipc/residency.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>

/* Returns the address of the process's residency table; 0: it has none. */
static uintptr_t find_table(const char *pid)
{
    char path[64], line[512];
    unsigned long first = 0;
    snprintf(path, sizeof path, "/proc/%.20s/maps", pid);
    FILE *f = fopen(path, "r");
    while (f && fgets(line, sizeof line, f))
        if (strstr(line, "memfd:moed-residency") && sscanf(line, "%lx-", &first) == 1)
            break;
    if (f)
        fclose(f);
    return first;
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: kv-limit PID BYTES|max\n");
        return 2;
    }
    uint64_t bytes = strcmp(argv[2], "max") == 0 ? UINT64_MAX : strtoull(argv[2], NULL, 10);
    uintptr_t table = find_table(argv[1]);
    if (!table) {
        fprintf(stderr, "kv-limit: process %s has no residency table\n", argv[1]);
        return 1;
    }
    struct iovec from = {&bytes, sizeof bytes};
    struct iovec to = {(void *)(table + offsetof(struct residency_header, kv_bytes)), sizeof bytes};
    if (process_vm_writev((pid_t)atoi(argv[1]), &from, 1, &to, 1, 0) == (ssize_t)sizeof bytes)
        return 0;
    int code = errno == EPERM || errno == ENOSYS ? 77 : 1;
    perror("kv-limit");
    return code;
}
