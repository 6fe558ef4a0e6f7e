/* See blas_paths.h. */
#include "blas_paths.h"

#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#define LIBRARY "libcublas.so.1[123]"

/* The files of a pattern; the highest version, which sorts last, first. */
static bool try_pattern(const char *pattern, bool (*take)(const char *path, void *arg), void *arg)
{
    glob_t found;
    bool taken = false;
    if (glob(pattern, GLOB_BRACE, NULL, &found))
        return false; /* none */
    for (size_t i = found.gl_pathc; i-- > 0 && !taken;)
        taken = take(found.gl_pathv[i], arg);
    globfree(&found);
    return taken;
}

/* MOED_CUBLAS: a file, or a folder. */
static bool try_given(const char *given, bool (*take)(const char *path, void *arg), void *arg)
{
    struct stat s;
    char pattern[PATH_MAX];
    if (stat(given, &s) != 0 || !S_ISDIR(s.st_mode))
        return take(given, arg);
    int n = snprintf(pattern, sizeof pattern, "%s/{,lib/,lib64/}" LIBRARY, given);
    return n < (int)sizeof pattern && try_pattern(pattern, take, arg);
}

/* prefix: may be a pattern. Packages install into
 * PREFIX/lib/python3.11/site-packages/nvidia/cublas/lib, or cu13 for cublas.
 */
static bool try_python(const char *prefix, bool (*take)(const char *path, void *arg), void *arg)
{
    char pattern[PATH_MAX];
    if (!prefix || !prefix[0])
        return false;
    int n = snprintf(pattern, sizeof pattern,
                     "%s/lib/python3*/{site,dist}-packages/nvidia/*/lib/" LIBRARY, prefix);
    return n < (int)sizeof pattern && try_pattern(pattern, take, arg);
}

bool blas_paths_try(bool (*take)(const char *path, void *arg), void *arg)
{
    const char *given = getenv("MOED_CUBLAS"), *home = getenv("HOME");
    if (given && given[0])
        return try_given(given, take, arg);
    static const char *const names[] = {"libcublas.so.13", "libcublas.so.12", "libcublas.so.11"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (take(names[i], arg))
            return true;
    char own[PATH_MAX];
    snprintf(own, sizeof own, "%s/{.local,.venv,venv}", home ? home : "");
    const char *const prefixes[] = {
        getenv("VIRTUAL_ENV"),    getenv("CONDA_PREFIX"), own, "/usr/local", "/usr",
        "/opt/{*,*/.venv,*/venv}"}; /* conda, images of containers */
    if (try_pattern("/usr/local/cuda/lib64/" LIBRARY, take, arg))
        return true;
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++)
        if (try_python(prefixes[i], take, arg))
            return true;
    return false;
}
