/* A device that this process has opened, and its errors. The lowest part of the CUDA module: every
 * other part includes this header, directly or through stream.h.
 *
 * Errors. A call of the runtime that fails is explained where it was made, with file and line. The
 * device keeps the first error: after a fault (an illegal address, say) every later call returns
 * that fault too, whatever the call is.
 *
 * Threads. Any thread may call any function of this header.
 *
 * Plain C and C++. */
#ifndef MOED_DEVICE_CUDA_CONTEXT_H
#define MOED_DEVICE_CUDA_CONTEXT_H

#include "device/module.h"

#include <cuda_runtime_api.h>
#include <pthread.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A registered part of host memory. */
struct cuda_pinned {
    const void *of; /* the address that the caller pinned */
    void *memory;   /* the part's own address */
};

struct device {
    int ordinal;
    /* from cudaDeviceProp */
    int multiprocessors;
    size_t block_shared_bytes;       /* that a block has by default */
    size_t block_shared_bytes_optin; /* that a block may have after cudaFuncSetAttribute */
    bool tensor_cores;               /* with int8 matrix functions (tensor_core.cuh) */
    bool bf16;                       /* with BF16 ones */
    bool dependent_launches;         /* dependent.cuh */
    bool pins_read_only;             /* the driver takes cudaHostRegisterReadOnly */
    bool signals;                    /* flags.h: the flags work */
    bool display, exclusive;         /* as struct device_facts */
    bool computes;                   /* opened for DEVICE_COMPUTES */
    char name[128], version[64], pci[24], mode[40];
    struct cuda_blas *blas; /* blas.h; NULL: not loaded */

    pthread_mutex_t lock;     /* guards first */
    struct error first;       /* code ERROR_OK: nothing has failed yet */
    pthread_mutex_t pin_lock; /* guards the list of pinned parts */
    struct cuda_pinned *pinned;
    size_t n_pinned, max_pinned;
};

/* Sets the device of the calling thread: the runtime's current device is the thread's. False: it
 * failed, and the device keeps the error. */
bool cuda_enter(struct device *d);
/* As cuda_enter, and returns the device's first error where it failed. */
enum error_code cuda_try_enter(struct device *d, struct error *e);

/* Sets e to a call's failure, "FILE:LINE: CALL: TEXT (NAME)", clears the runtime's last error and
 * returns the error code. `what` is the call; its arguments are left out. The device does not keep
 * the error. */
#define CUDA_EXPLAIN(e, code, what) cuda_explain(e, code, what, __FILE__, __LINE__)
enum error_code cuda_explain(struct error *e, cudaError_t code, const char *what, const char *file,
                             int line);

/* Makes a call of the runtime: cuda_try(s->device, cudaMemsetAsync(...)). False: it failed, and the
 * device keeps the error. */
#define cuda_try(device, call) cuda_remember(device, call, #call, __FILE__, __LINE__)
bool cuda_remember(struct device *d, cudaError_t code, const char *what, const char *file,
                   int line);
/* Keeps an error of the module's own, such as arguments that an operation cannot serve. */
void cuda_refuse(struct device *d, const char *what, const char *file, int line);
/* Reports a line to the process's log; see report_to of module.h. */
void cuda_report_to(void (*line)(const char *text));
void cuda_report(const char *text);
/* The error that the device keeps; e is set where there is one. */
enum error_code cuda_first_error(struct device *d, struct error *e);

#ifdef __cplusplus
}
#endif
#endif
