/* Where models are; see model_file.h.
 *
 * The demo model is in share/moed/models of an installation and in models/ of the sources, to which
 * the build folder has a link. Both paths are relative to this program. */
#include "client/cli/model_file.h"

#include "base/program_folder.h"
#include "client/cli/complain.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DEMO      "demo"
#define DEMO_FILE "demo.gguf"

static bool find_demo(char out[PATH_MAX])
{
    /* MOED_DATA_FROM_PROGRAM, from the build: the path from the installed programs to share/moed.
     */
    static const char *const below[] = {MOED_DATA_FROM_PROGRAM "/models", "../models"};
    char folder[PATH_MAX], path[PATH_MAX];
    if (!program_folder(folder)) {
        cli_complain("cannot read /proc/self/exe: %s", strerror(errno));
        return false;
    }
    for (size_t i = 0; i < sizeof below / sizeof *below; i++) {
        int n = snprintf(path, sizeof path, "%s/%s/" DEMO_FILE, folder, below[i]);
        if (n < 0 || n >= (int)sizeof path || access(path, F_OK) != 0)
            continue;
        /* Users should not see "bin/../share" or the build folder's link. */
        if (!realpath(path, out))
            memcpy(out, path, (size_t)n + 1);
        return true;
    }
    cli_complain("the demo model is missing: it is models/" DEMO_FILE
                 " in moed's sources and share/moed/models/" DEMO_FILE
                 " of an installation; give the path of a GGUF file instead");
    return false;
}

bool model_file_find(const char *argument, char out[PATH_MAX])
{
    if (strcmp(argument, DEMO) == 0 && access(argument, F_OK) != 0)
        return find_demo(out);
    return model_file_absolute(argument, out);
}

bool model_file_absolute(const char *argument, char out[PATH_MAX])
{
    char here[PATH_MAX] = "";
    bool absolute = argument[0] == '/';
    if (!absolute && !getcwd(here, sizeof here)) {
        cli_complain("the current directory cannot be read: %s", strerror(errno));
        return false;
    }
    size_t before = absolute ? 0 : strlen(here) + 1, len = strlen(argument);
    if (before + len >= PATH_MAX) {
        cli_complain("a path is longer than %d bytes", PATH_MAX - 1);
        return false;
    }
    if (!absolute) {
        memcpy(out, here, before - 1);
        out[before - 1] = '/';
    }
    memcpy(out + before, argument, len + 1);
    return true;
}
