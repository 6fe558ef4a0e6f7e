/* Files that are read again; see renewal.h. */
#include "client/http/server/renewal.h"

#include "base/clock.h"

#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* All zeros where there is none. */
static struct file_version look(const char *path)
{
    struct stat s;
    if (!path || stat(path, &s) != 0)
        return (struct file_version){0};
    return (struct file_version){s.st_dev, s.st_ino, s.st_size, s.st_mtim, s.st_ctim};
}

static bool same_time(struct timespec a, struct timespec b)
{
    return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
}

static bool same(const struct file_version *a, const struct file_version *b)
{
    return a->device == b->device && a->inode == b->inode && a->bytes == b->bytes &&
           same_time(a->modified, b->modified) && same_time(a->changed, b->changed);
}

void renewal_begin(struct renewal *r, const char *a, const char *b)
{
    *r = (struct renewal){.paths = {a, b}};
    for (int i = 0; i < RENEWAL_FILES; i++)
        r->read[i] = r->seen[i] = look(r->paths[i]);
}

bool renewal_is_due(struct renewal *r)
{
    uint64_t now = clock_ns();
    bool changed = false, settled = true;
    if (!r->paths[0] || now < r->next_ns)
        return false;
    r->next_ns = now + RENEWAL_INTERVAL_MS * 1000000ull;
    for (int i = 0; i < RENEWAL_FILES; i++) {
        struct file_version version = look(r->paths[i]);
        changed |= !same(&version, &r->read[i]);
        settled &= same(&version, &r->seen[i]);
        r->seen[i] = version;
    }
    if (changed && settled)
        memcpy(r->read, r->seen, sizeof r->read);
    return changed && settled;
}

/* Directories of much else, which a fault of the process is not to reach. */
static bool is_shared(const char *directory)
{
    static const char *const shared[] = {"/",    "/etc", "/tmp", "/var", "/var/lib", "/var/tmp",
                                         "/srv", "/usr", "/opt", "/run", "/home",    "/root"};
    char home[PATH_MAX];
    const char *own = getenv("HOME");
    if (own && realpath(own, home) && strcmp(home, directory) == 0)
        return true;
    for (size_t i = 0; i < sizeof shared / sizeof *shared; i++)
        if (strcmp(shared[i], directory) == 0)
            return true;
    return false;
}

const char *renewal_directory(const char *path, bool target, char *out)
{
    char whole[PATH_MAX], parent[PATH_MAX];
    out[0] = '\0';
    if (target) {
        if (!realpath(path, whole))
            return NULL;
    } else if (snprintf(whole, sizeof whole, "%s", path) >= (int)sizeof whole) {
        return NULL;
    }
    if (!realpath(dirname(whole), parent) || is_shared(parent))
        return NULL;
    return strcpy(out, parent);
}
