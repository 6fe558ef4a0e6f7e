/* Where a deployment's options are; see options_file.h. */
#include "daemon/options_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

bool options_file_find(const char *name, char out[PATH_MAX])
{
    const char *folder = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");
    bool absolute = folder && folder[0] == '/';
    int n = snprintf(out, PATH_MAX, "%s%s/moed/%s.conf",
                     absolute ? folder
                     : home   ? home
                              : "",
                     absolute ? "" : "/.config", name);
    return n > 0 && n < PATH_MAX && access(out, F_OK) == 0;
}
