/* Loading a device module; see module.h. */
#include "device/module.h"

#include "base/log.h"
#include "base/program_folder.h"

#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The loaded modules; there are few kinds of devices. */
enum { MODULES_MOST = 4 };
static struct {
    pthread_mutex_t lock;
    char names[MODULES_MOST][16];
    const struct device_module *modules[MODULES_MOST];
} loaded = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* "libmoed-NAME.so" in `below` of the running program's directory. */
static bool find_below(const char *below, const char *name, char out[PATH_MAX])
{
    char self[PATH_MAX];
    if (!program_folder(self))
        return false;
    int len = snprintf(out, PATH_MAX, "%s%s/libmoed-%s.so", self, below, name);
    return len > 0 && len < PATH_MAX && access(out, R_OK) == 0;
}

static enum error_code find(const char *name, char out[PATH_MAX], struct error *e)
{
    const char *named = strcmp(name, "cuda") == 0 ? getenv("MOED_CUDA_MODULE") : NULL;
    if (named && named[0]) {
        if (strlen(named) >= PATH_MAX || access(named, R_OK) != 0)
            return error_set(e, ERROR_UNSUPPORTED,
                             "device %s: MOED_CUDA_MODULE names %.200s, which cannot be read", name,
                             named);
        strcpy(out, named);
        return ERROR_OK;
    }
    if (find_below("", name, out) || find_below("/../lib/moed", name, out))
        return ERROR_OK;
    return error_set(e, ERROR_UNSUPPORTED,
                     "device %s: libmoed-%s.so is missing, this moed was built without it: build "
                     "it where the CUDA toolkit is installed (docs/gpu.md), or use --device host",
                     name, name);
}

static void report(const char *text)
{
    log_info("%s", text);
}

static enum error_code load(const char *path, const struct device_module **out, struct error *e)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return error_set(e, ERROR_UNSUPPORTED, "the device module cannot be loaded: %.300s",
                         dlerror());
    device_module_function *table = NULL;
    *(void **)&table = dlsym(library, DEVICE_MODULE_SYMBOL);
    const struct device_module *m = table ? table() : NULL;
    if (m && m->abi == DEVICE_MODULE_ABI) {
        m->report_to(report);
        *out = m;
        return ERROR_OK;
    }
    uint32_t abi = m ? m->abi : 0;
    dlclose(library);
    if (m)
        return error_set(e, ERROR_UNSUPPORTED,
                         "%.200s is of another build of moed (interface %u, wanted %u): reinstall",
                         path, abi, DEVICE_MODULE_ABI);
    return error_set(e, ERROR_UNSUPPORTED, "%.200s is not a device module of moed", path);
}

/* Under the lock. */
static enum error_code find_or_load(const char *name, const struct device_module **out,
                                    struct error *e)
{
    int at = 0;
    while (at < MODULES_MOST && loaded.names[at][0]) {
        if (strcmp(loaded.names[at], name) == 0) {
            *out = loaded.modules[at];
            return ERROR_OK;
        }
        at++;
    }
    if (at == MODULES_MOST || strlen(name) >= sizeof loaded.names[at])
        return error_set(e, ERROR_LIMIT, "no more device modules can be loaded: %.40s", name);
    char path[PATH_MAX];
    enum error_code code = find(name, path, e);
    if (!code)
        code = load(path, &loaded.modules[at], e);
    if (code)
        return code;
    strcpy(loaded.names[at], name);
    *out = loaded.modules[at];
    return ERROR_OK;
}

enum error_code device_module_load(const char *name, const struct device_module **out,
                                   struct error *e)
{
    pthread_mutex_lock(&loaded.lock);
    enum error_code code = find_or_load(name, out, e);
    pthread_mutex_unlock(&loaded.lock);
    return code;
}
