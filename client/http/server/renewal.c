/* Files that are read again; see renewal.h. */
#include "client/http/server/renewal.h"

#include "base/clock.h"

#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LINKS_MOST 40 /* as the kernel follows */

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
    bool retry = r->retry_ns && now >= r->retry_ns;
    if (!settled || !(changed || retry))
        return false;
    if (changed)
        r->failure[0] = '\0'; /* the same one again is news */
    r->retry_ns = 0;
    memcpy(r->read, r->seen, sizeof r->read);
    return true;
}

void renewal_succeeded(struct renewal *r)
{
    r->failure[0] = '\0';
}

bool renewal_failed(struct renewal *r, const struct error *e)
{
    bool differs = strcmp(r->failure, e->text) != 0;
    snprintf(r->failure, sizeof r->failure, "%s", e->text);
    if (e->code != ERROR_FORMAT && e->code != ERROR_USAGE)
        r->retry_ns = clock_ns() + RENEWAL_RETRY_MS * 1000000ull;
    return differs;
}

void renewal_end(struct renewal *r)
{
    *r = (struct renewal){0};
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

static bool is_beneath(const char *path, const char *directory)
{
    size_t n = strlen(directory);
    return strncmp(path, directory, n) == 0 && (path[n] == '/' || path[n] == '\0');
}

static bool add_directory(struct renewal_directories *d, const char *path)
{
    for (size_t i = 0; i < d->count; i++)
        if (strcmp(d->paths[i], path) == 0)
            return true;
    if (is_shared(path) || d->count == RENEWAL_DIRECTORIES)
        return false;
    strcpy(d->paths[d->count++], path);
    return true;
}

/* A link to a directory, in the directory `at`. Those of the system, as /var/run, stay. */
static void add_directory_link(struct renewal_directories *d, const char *at, const char *link)
{
    char target[PATH_MAX];
    if (strcmp(at, "/") == 0 || strcmp(at, "/var") == 0)
        return;
    if (!add_directory(d, at) || !realpath(link, target) || !is_beneath(target, at))
        strcpy(d->fixed, link);
}

/* Puts what the link holds before the rest of the path. */
static bool follow(char *at, const char *link, char *rest)
{
    char target[PATH_MAX], whole[2 * PATH_MAX];
    ssize_t n = readlink(link, target, sizeof target - 1);
    if (n <= 0)
        return false;
    target[n] = '\0';
    snprintf(whole, sizeof whole, "%s/%s", target, rest);
    if (strlen(whole) >= PATH_MAX)
        return false;
    strcpy(rest, whole);
    if (target[0] == '/')
        strcpy(at, "/");
    return true;
}

/* The first name of the path, which goes on behind it; false: it has none. */
static bool take_name(char *rest, char *name)
{
    size_t from = strspn(rest, "/"), n = strcspn(rest + from, "/");
    if (n == 0 || n > NAME_MAX)
        return false;
    memcpy(name, rest + from, n);
    name[n] = '\0';
    memmove(rest, rest + from + n, strlen(rest + from + n) + 1);
    return true;
}

static bool join(const char *at, const char *name, char *out)
{
    int n = snprintf(out, PATH_MAX, "%s/%s", strcmp(at, "/") == 0 ? "" : at, name);
    return n < PATH_MAX;
}

bool renewal_directories_find(const char *path, struct renewal_directories *out)
{
    char at[PATH_MAX], rest[PATH_MAX], name[NAME_MAX + 1], next[PATH_MAX];
    struct stat s, whole;
    out->count = 0;
    out->fixed[0] = '\0';
    if (strlen(path) >= sizeof rest || !realpath(path[0] == '/' ? "/" : ".", at))
        return false;
    strcpy(rest, path);
    for (int links = 0; take_name(rest, name);) {
        if (strcmp(name, ".") == 0)
            continue;
        if (strcmp(name, "..") == 0) {
            strcpy(next, dirname(at));
            memmove(at, next, strlen(next) + 1);
            continue;
        }
        if (!join(at, name, next) || lstat(next, &s) != 0 || stat(next, &whole) != 0)
            return false;
        if (!S_ISDIR(whole.st_mode) && !add_directory(out, at))
            return false;
        if (S_ISLNK(s.st_mode)) {
            if (S_ISDIR(whole.st_mode))
                add_directory_link(out, at, next);
            if (++links > LINKS_MOST || !follow(at, next, rest))
                return false;
        } else if (S_ISDIR(s.st_mode)) {
            strcpy(at, next);
        }
    }
    return out->count > 0;
}
