/* The compute capabilities that the kernels were compiled for. Plain C and C++. */
#ifndef MOED_DEVICE_CUDA_ARCHITECTURES_H
#define MOED_DEVICE_CUDA_ARCHITECTURES_H

#ifdef __cplusplus
extern "C" {
#endif

/* The least of them, as 75 for 7.5; 0 for tests/cusim. */
int cuda_least_architecture(void);
/* The one whose code a device of this compute capability runs; the capability itself for
 * tests/cusim. */
int cuda_best_architecture(int capability);

#ifdef __cplusplus
}
#endif
#endif
