/* The current device of a thread, and the errors of a device; see context.h. */
#include "context.h"

#include <string.h>

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static enum error_code code_of(cudaError_t code)
{
    switch (code) {
    case cudaErrorMemoryAllocation:
        return ERROR_MEMORY;
    case cudaErrorNotSupported:
    case cudaErrorInvalidDeviceFunction:
    case cudaErrorNoKernelImageForDevice:
        return ERROR_UNSUPPORTED;
    default:
        return ERROR_IO;
    }
}

static const char *advice(cudaError_t code)
{
    return code == cudaErrorDevicesUnavailable
               ? ": another process has the device for itself (compute mode Exclusive_Process): "
                 "give --mps, or run nvidia-smi -c DEFAULT"
               : "";
}

enum error_code cuda_explain(struct error *e, cudaError_t code, const char *what, const char *file,
                             int line)
{
    int name = (int)strcspn(what, "("); /* the function, without its arguments */
    cudaGetLastError(); /* the error is reported here: the next call's error is its own */
    return error_set(e, code_of(code), "%s:%d: %.*s: %s (%s)%s", base_name(file), line, name, what,
                     cudaGetErrorString(code), cudaGetErrorName(code), advice(code));
}

/* Keeps e, unless the device has an error already. */
static void keep_error(struct device *d, const struct error *e)
{
    pthread_mutex_lock(&d->lock);
    if (d->first.code == ERROR_OK)
        d->first = *e;
    pthread_mutex_unlock(&d->lock);
}

bool cuda_remember(struct device *d, cudaError_t code, const char *what, const char *file, int line)
{
    struct error e;
    if (code == cudaSuccess)
        return true;
    cuda_explain(&e, code, what, file, line);
    keep_error(d, &e);
    return false;
}

void cuda_refuse(struct device *d, const char *what, const char *file, int line)
{
    struct error e;
    error_set(&e, ERROR_INTERNAL, "%s:%d: %s", base_name(file), line, what);
    keep_error(d, &e);
}

static void ignore_line(const char *text)
{
    (void)text;
}

static void (*report_line)(const char *text) = ignore_line;

void cuda_report_to(void (*line)(const char *text))
{
    report_line = line;
}

void cuda_report(const char *text)
{
    report_line(text);
}

enum error_code cuda_first_error(struct device *d, struct error *e)
{
    pthread_mutex_lock(&d->lock);
    enum error_code code = d->first.code;
    if (code && e)
        *e = d->first;
    pthread_mutex_unlock(&d->lock);
    return code;
}

bool cuda_enter(struct device *d)
{
    static _Thread_local int current = -1;
    if (current == d->ordinal)
        return true;
    if (!cuda_try(d, cudaSetDevice(d->ordinal)))
        return false;
    current = d->ordinal;
    return true;
}

enum error_code cuda_try_enter(struct device *d, struct error *e)
{
    return cuda_enter(d) ? ERROR_OK : cuda_first_error(d, e);
}
