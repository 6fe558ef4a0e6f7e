/* See program_folder.h. */
#include "base/program_folder.h"

#include <string.h>
#include <unistd.h>

bool program_folder(char out[PATH_MAX])
{
    ssize_t n = readlink("/proc/self/exe", out, PATH_MAX - 1);
    out[n > 0 ? n : 0] = '\0';
    char *slash = strrchr(out, '/');
    if (slash)
        *slash = '\0';
    return n > 0;
}
