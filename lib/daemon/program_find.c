/* Finding programs; see program_find.h. */
#include "daemon/program_find.h"

#include "base/program_folder.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static bool try_path(const char *dir, const char *below, const char *name, char out[PATH_MAX])
{
    char path[PATH_MAX];
    int n = snprintf(path, sizeof path, "%s%s/%s", dir, below, name);
    if (n < 0 || n >= (int)sizeof path || access(path, X_OK) != 0)
        return false;
    memcpy(out, path, (size_t)n + 1);
    return true;
}

enum error_code program_find(const char *name, const char *bindir, char out[PATH_MAX],
                             struct error *e)
{
    static const char *const below[] = {"",           "/../libexec/moed", "/../memd",
                                        "/../worker", "/../cpuexec",      "/../deploy",
                                        "/../client"};
    if (bindir && try_path(bindir, "", name, out))
        return ERROR_OK;
    char self[PATH_MAX];
    if (!program_folder(self))
        return error_set(e, ERROR_IO, "cannot read /proc/self/exe: %m");
    for (size_t i = 0; i < sizeof below / sizeof *below; i++)
        if (try_path(self, below[i], name, out))
            return ERROR_OK;
    return error_set(
        e, ERROR_NOT_FOUND,
        "the program %s is neither in this program's directory (%.200s) nor in its build tree: "
        "reinstall moed",
        name, self);
}
