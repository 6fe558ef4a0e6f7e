/* Whether the machine has an NVIDIA GPU, also where no driver or module for it is installed: read
 * from the files of the kernel, so any thread may call. */
#ifndef MOED_DEVICE_NVIDIA_GPU_H
#define MOED_DEVICE_NVIDIA_GPU_H

#include <stdbool.h>

/* root: the folder that has proc, dev and sys; "" for this machine. */
bool nvidia_gpu_exists(const char *root);
/* NVIDIA's driver is loaded. False with nouveau, which CUDA does not use. */
bool nvidia_gpu_has_driver(const char *root);

#endif
