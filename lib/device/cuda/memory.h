/* Device memory, its handles for other processes, and pinned host memory; the functions of struct
 * device_module of the same names. Any thread may call. */
#ifndef MOED_DEVICE_CUDA_MEMORY_H
#define MOED_DEVICE_CUDA_MEMORY_H

#include "context.h"

/* Both 0: the device does not answer. */
void cuda_memory_info(struct device *d, uint64_t *free_bytes, uint64_t *memory_bytes);
enum error_code cuda_allocate(struct device *d, size_t bytes, void **out, struct error *e);
void cuda_release(struct device *d, void *memory); /* takes NULL */
enum error_code cuda_export_memory(struct device *d, void *memory, struct device_handle *out,
                                   struct error *e);
enum error_code cuda_import_memory(struct device *d, const struct device_handle *from, void **out,
                                   struct error *e);
void cuda_close_imported(struct device *d, void *memory); /* takes NULL */
enum error_code cuda_pin(struct device *d, const void *memory, size_t bytes, struct error *e);
void cuda_unpin(struct device *d, const void *memory);
void cuda_unpin_all(struct device *d); /* on the device's thread, when it is closed */
enum error_code cuda_allocate_pinned(struct device *d, size_t bytes, void **out, struct error *e);
void cuda_release_pinned(struct device *d, void *memory); /* takes NULL */

#endif
