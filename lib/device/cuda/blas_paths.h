/* Where cuBLAS may lie on this machine. Needs no CUDA. Plain C and C++. */
#ifndef MOED_DEVICE_CUDA_BLAS_PATHS_H
#define MOED_DEVICE_CUDA_BLAS_PATHS_H

#include <limits.h>
#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Calls take with one candidate after the other until it returns true; returns whether it did.
 *
 * With the environment variable MOED_CUBLAS: that file, or the libcublas.so.* in that folder or its
 * lib. Otherwise: the names that the loader looks up (LD_LIBRARY_PATH, ldconfig), then the
 * toolkit's usual folder, then those of Python's packages (of the virtual environment, conda, the
 * user, the system and what lies in /opt), newest version first. */
bool blas_paths_try(bool (*take)(const char *path, void *arg), void *arg);

#ifdef __cplusplus
}
#endif
#endif
