/* Limits of control groups; see cgroup_memory.h. Sources: the kernel's
 * Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/memory.rst. */
#include "base/cgroup_memory.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define PATH_BYTES 8192
#define LINE_BYTES 4200

/* The two versions' files. */
struct version {
    const char *mount, *limit, *used, *inactive, *active;
};

static const struct version versions[] = {
    {"/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file", "active_file"},
    {"/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
     "total_inactive_file", "total_active_file"},
};

struct group {
    const char *root;
    const struct version *version;
    char path[LINE_BYTES]; /* "/a/b"; "": the root of the mount */
};

static FILE *open_file(const struct group *g, const char *file)
{
    char path[PATH_BYTES];
    int n = snprintf(path, sizeof path, "%s%s%s/%s", g->root, g->version->mount, g->path, file);
    return n > 0 && (size_t)n < sizeof path ? fopen(path, "re") : NULL;
}

static bool read_number(const struct group *g, const char *file, uint64_t *out)
{
    FILE *f = open_file(g, file);
    unsigned long long n = 0;
    if (f == NULL)
        return false;
    bool ok = fscanf(f, "%llu", &n) == 1; /* "max" is no number: no limit */
    fclose(f);
    *out = n;
    return ok;
}

static uint64_t page_cache(const struct group *g)
{
    FILE *f = open_file(g, "memory.stat");
    char line[256], name[64];
    unsigned long long bytes, sum = 0;
    while (f != NULL && fgets(line, sizeof line, f) != NULL)
        if (sscanf(line, "%63s %llu", name, &bytes) == 2 &&
            (strcmp(name, g->version->inactive) == 0 || strcmp(name, g->version->active) == 0))
            sum += bytes;
    if (f != NULL)
        fclose(f);
    return sum;
}

static uint64_t available_in(const struct group *g)
{
    uint64_t limit, used;
    if (!read_number(g, g->version->limit, &limit) || !read_number(g, g->version->used, &used))
        return UINT64_MAX;
    uint64_t cache = page_cache(g);
    used = used > cache ? used - cache : 0;
    return limit > used ? limit - used : 0;
}

/* Of the group and all above it. In a container the path may be the host's: then only the mount's
 * root exists, and that is the container's own group. */
static uint64_t available_upwards(struct group *g)
{
    uint64_t least = UINT64_MAX;
    for (;;) {
        uint64_t here = available_in(g);
        least = here < least ? here : least;
        char *slash = strrchr(g->path, '/');
        if (slash == NULL)
            return least;
        *slash = '\0';
    }
}

/* The group's path in a line of /proc/self/cgroup, "NUMBER:CONTROLLERS:PATH", where it is of this
 * version; NULL: it is not. */
static const char *path_in(char *line, bool second)
{
    char *controllers = strchr(line, ':'),
         *path = controllers ? strchr(controllers + 1, ':') : NULL;
    if (path == NULL)
        return NULL;
    *path++ = '\0';
    path[strcspn(path, "\n")] = '\0';
    controllers++;
    if (second)
        return *controllers == '\0' ? path : NULL;
    for (char *rest = controllers, *word; (word = strsep(&rest, ",")) != NULL;)
        if (strcmp(word, "memory") == 0)
            return path;
    return NULL;
}

uint64_t cgroup_memory_available(const char *root)
{
    char file[PATH_BYTES], line[LINE_BYTES];
    uint64_t least = UINT64_MAX;
    snprintf(file, sizeof file, "%s/proc/self/cgroup", root);
    FILE *f = fopen(file, "re");
    while (f != NULL && fgets(line, sizeof line, f) != NULL)
        for (int i = 0; i < 2; i++) {
            char copy[LINE_BYTES];
            struct group g = {.root = root, .version = &versions[i]};
            memcpy(copy, line, sizeof copy);
            const char *path = path_in(copy, i == 0);
            if (path == NULL)
                continue;
            snprintf(g.path, sizeof g.path, "%s", strcmp(path, "/") == 0 ? "" : path);
            uint64_t available = available_upwards(&g);
            least = available < least ? available : least;
        }
    if (f != NULL)
        fclose(f);
    return least;
}
