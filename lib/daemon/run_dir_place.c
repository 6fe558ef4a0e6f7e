/* The places of RUN; see run_dir.h. */
#include "daemon/run_dir.h"
#include "daemon/supervisor_protocol.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define SERVING "serving"
#define SECOND  "2"

bool run_dir_place(const char *run, unsigned place, char out[RUN_DIR_BYTES])
{
    char path[RUN_DIR_BYTES + sizeof SECOND + 1];
    snprintf(path, sizeof path, "%s%s%s", run, place ? "/" : "", place ? SECOND : "");
    if (strlen(path) >= RUN_DIR_BYTES)
        return false;
    memcpy(out, path, strlen(path) + 1);
    return true;
}

unsigned run_dir_serving(const char *run)
{
    char path[PATH_MAX], target[sizeof SECOND + 1];
    snprintf(path, sizeof path, "%s/" SERVING, run);
    ssize_t n = readlink(path, target, sizeof target);
    return n == (ssize_t)strlen(SECOND) && memcmp(target, SECOND, strlen(SECOND)) == 0;
}

enum error_code run_dir_serve(const char *run, unsigned place, struct error *e)
{
    char path[PATH_MAX], next[PATH_MAX];
    snprintf(path, sizeof path, "%s/" SERVING, run);
    snprintf(next, sizeof next, "%s/" SERVING ".next", run);
    bool done = place ? (unlink(next) == 0 || errno == ENOENT) && symlink(SECOND, next) == 0 &&
                            rename(next, path) == 0
                      : unlink(path) == 0 || errno == ENOENT;
    return done ? ERROR_OK : error_set(e, ERROR_IO, "cannot switch %s: %m", path);
}

/* Of those that `moed reload` replaces; the others are in RUN. */
static bool has_place(const char *process)
{
    return supervise_needs_memd(process) || strcmp(process, "memd") == 0;
}

void run_dir_of(const char *run, const char *process, char out[RUN_DIR_BYTES])
{
    unsigned place = has_place(process) ? run_dir_serving(run) : 0;
    if (!run_dir_place(run, place, out))
        out[0] = '\0'; /* too long: no such directory can have been made */
}
