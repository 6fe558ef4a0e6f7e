/* The files of calibrations; see calibration.h. */
#include "calibration/calibration.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

bool calibration_folder(char out[PATH_MAX])
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    int n = -1;
    if (cache && cache[0] == '/')
        n = snprintf(out, PATH_MAX, "%s/moed", cache);
    else if (home && home[0] == '/')
        n = snprintf(out, PATH_MAX, "%s/.cache/moed", home);
    return n > 0 && n < PATH_MAX;
}

/* FNV-1a. Includes the NUL, so that "ab" "c" and "a" "bc" differ. */
static uint64_t hash_text(uint64_t h, const char *text)
{
    do
        h = (h ^ (unsigned char)*text) * 0x100000001b3u;
    while (*text++);
    return h;
}

bool calibration_path(const struct calibration *of, char out[PATH_MAX])
{
    char folder[PATH_MAX];
    if (!calibration_folder(folder))
        return false;
    uint64_t h = 0xcbf29ce484222325u;
    h = hash_text(h, of->machine);
    h = hash_text(h, of->device);
    h = hash_text(h, of->model);
    h = hash_text(h, of->shapes);
    int n = snprintf(out, PATH_MAX, "%s/%016" PRIx64 ".calibration", folder, h);
    return n > 0 && n < PATH_MAX;
}

enum error_code calibration_load_file(const char *path, struct calibration *out, struct error *e)
{
    char text[CALIBRATION_MAX_TEXT + 1];
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return error_set(e, errno == ENOENT ? ERROR_NOT_FOUND : ERROR_IO, "%s: %s", path,
                         strerror(errno));
    size_t got = 0;
    ssize_t n;
    while (got < sizeof text && (n = read(fd, text + got, sizeof text - got)) != 0) {
        if (n > 0)
            got += (size_t)n;
        else if (errno != EINTR)
            break;
    }
    close(fd);
    if (got == sizeof text || memchr(text, '\0', got))
        return error_set(e, ERROR_FORMAT, "%s: not a calibration file", path);
    text[got] = '\0';
    struct error why;
    enum error_code code = calibration_parse(text, out, &why);
    return code ? error_set(e, code, "%s: %s", path, why.text) : ERROR_OK;
}

enum error_code calibration_load(const struct calibration *of, struct calibration *out,
                                 struct error *e)
{
    char path[PATH_MAX];
    if (!calibration_path(of, path))
        return error_set(e, ERROR_NOT_FOUND, "neither XDG_CACHE_HOME nor HOME is set");
    enum error_code code = calibration_load_file(path, out, e);
    if (!code && !calibration_same(of, out))
        code = error_set(e, ERROR_FORMAT, "%s: of another machine or model", path);
    return code;
}

/* Makes each missing folder of the path, with access for this user only. */
static bool make_folders(const char *path)
{
    char part[PATH_MAX];
    size_t n = strlen(path);
    for (size_t i = 1; i <= n; i++) {
        if (path[i] != '/' && path[i] != '\0')
            continue;
        memcpy(part, path, i);
        part[i] = '\0';
        if (mkdir(part, 0700) && errno != EEXIST)
            return false;
    }
    return true;
}

bool calibration_make_folder(char out[PATH_MAX])
{
    return calibration_folder(out) && make_folders(out);
}

static bool write_all(int fd, const char *data, size_t len)
{
    while (len) {
        ssize_t n = write(fd, data, len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        data += n;
        len -= (size_t)n;
    }
    return fsync(fd) == 0;
}

int calibration_lock(const struct calibration *of)
{
    char folder[PATH_MAX], path[PATH_MAX], lock[PATH_MAX];
    if (!calibration_folder(folder) || !calibration_path(of, path) || !make_folders(folder))
        return -1;
    int n = snprintf(lock, sizeof lock, "%s.lock", path);
    int fd = n > 0 && (size_t)n < sizeof lock
                 ? open(lock, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600)
                 : -1;
    while (fd >= 0 && flock(fd, LOCK_EX) != 0)
        if (errno != EINTR) {
            close(fd);
            return -1;
        }
    return fd;
}

enum error_code calibration_store(const struct calibration *c, struct error *e)
{
    char folder[PATH_MAX], path[PATH_MAX], fresh[PATH_MAX];
    if (!calibration_folder(folder) || !calibration_path(c, path))
        return error_set(e, ERROR_NOT_FOUND, "neither XDG_CACHE_HOME nor HOME is set");
    int n = snprintf(fresh, sizeof fresh, "%s/.new-XXXXXX", folder);
    if (n < 0 || (size_t)n >= sizeof fresh || !make_folders(folder))
        return error_set(e, ERROR_IO, "%s: %s", folder, strerror(errno));
    struct strbuf text;
    strbuf_init(&text);
    calibration_write(c, &text);
    int fd = text.failed ? -1 : mkostemp(fresh, O_CLOEXEC);
    bool ok = fd >= 0 && write_all(fd, text.data, text.len) && rename(fresh, path) == 0;
    enum error_code code = ok ? ERROR_OK : error_set(e, ERROR_IO, "%s: %s", path, strerror(errno));
    if (fd >= 0) {
        if (!ok)
            unlink(fresh);
        close(fd);
    }
    strbuf_fini(&text);
    return code;
}

enum error_code calibration_store_corrections(const struct calibration *c, struct error *e)
{
    struct calibration kept;
    enum error_code code = calibration_load(c, &kept, e);
    if (!code && kept.measured_at != c->measured_at)
        code = error_set(e, ERROR_NOT_FOUND, "the file holds a later calibration");
    if (code)
        return code;
    memcpy(kept.corrections, c->corrections, sizeof kept.corrections);
    return calibration_store(&kept, e);
}
