/* The compute capabilities that the kernels were compiled for. Plain C and C++. */
#ifndef MOED_DEVICE_CUDA_ARCHITECTURES_H
#define MOED_DEVICE_CUDA_ARCHITECTURES_H

#ifdef __cplusplus
extern "C" {
#endif

/* The least of them, as 75 for 7.5; 0 for tests/cusim. */
int cuda_least_architecture(void);

#ifdef __cplusplus
}
#endif
#endif
