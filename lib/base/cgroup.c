/* The control groups of a process; see cgroup.h. */
#include "base/cgroup.h"

#include <string.h>

enum { FILE_BYTES = 8192 };

FILE *cgroup_open_list(const char *root, long pid)
{
    char file[FILE_BYTES];
    if (pid)
        snprintf(file, sizeof file, "%s/proc/%ld/cgroup", root, pid);
    else
        snprintf(file, sizeof file, "%s/proc/self/cgroup", root);
    return fopen(file, "re");
}

static bool names(char *controllers, const char *controller)
{
    for (char *rest = controllers, *word; (word = strsep(&rest, ",")) != NULL;)
        if (strcmp(word, controller) == 0)
            return true;
    return false;
}

/* A line is "NUMBER:CONTROLLERS:PATH"; version 2 names no controllers. */
bool cgroup_next(FILE *list, const char *controller, struct cgroup *g)
{
    char line[sizeof g->path];
    while (list != NULL && fgets(line, sizeof line, list) != NULL) {
        char *controllers = strchr(line, ':');
        char *path = controllers ? strchr(controllers + 1, ':') : NULL;
        if (path == NULL)
            continue;
        *path++ = '\0';
        path[strcspn(path, "\n")] = '\0';
        g->second = *++controllers == '\0';
        if (!g->second && !names(controllers, controller))
            continue;
        snprintf(g->path, sizeof g->path, "%s", strcmp(path, "/") == 0 ? "" : path);
        return true;
    }
    return false;
}

bool cgroup_up(struct cgroup *g)
{
    char *slash = strrchr(g->path, '/');
    if (slash != NULL)
        *slash = '\0';
    return slash != NULL;
}

bool cgroup_is_below(const struct cgroup *g, const struct cgroup *above)
{
    size_t len = strlen(above->path);
    const char *rest = g->path + strnlen(g->path, len);
    bool climbs = strncmp(rest, "/..", 3) == 0 && (rest[3] == '/' || rest[3] == '\0');
    return !climbs && g->second == above->second && strncmp(g->path, above->path, len) == 0 &&
           (g->path[len] == '/' || g->path[len] == '\0');
}
