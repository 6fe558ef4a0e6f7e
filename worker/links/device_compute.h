/* Computes experts out of the memory of a device that has its own: on this process's threads for an
 * emulated device, in the kernels of a device module for a real one. The bits are the same
 * (exec/exec.h).
 *
 * Threads: only the engine's; before that starts, the calibrating thread. */
#ifndef MOED_WORKER_LINKS_DEVICE_COMPUTE_H
#define MOED_WORKER_LINKS_DEVICE_COMPUTE_H

#include "base/error.h"
#include "device/module.h"
#include "exec/exec.h"
#include "memory/memory_client.h"

struct cuda_device;
struct device_compute;

/* An imported extent of the arena. */
struct device_import {
    const uint8_t *slots; /* on the device */
};

/* Borrows memory (which has an arena), own and cuda. cuda NULL: the device is emulated, and each
 * run takes call_s more. max_tokens: of a call; max_rows: tokens of all its tasks together.
 * ERROR_MEMORY: the device has not enough. */
enum error_code device_compute_new(const struct memory_client *memory, struct exec *own,
                                   struct cuda_device *cuda, double call_s, uint32_t max_tokens,
                                   uint32_t max_rows, struct device_compute **out, struct error *e);
void device_compute_free(struct device_compute *c); /* takes NULL */

/* The device's name; "" for an emulated one. */
const char *device_compute_name(const struct device_compute *c);
/* The device address of the arena's first slot. */
const uint8_t *device_compute_arena(const struct device_compute *c);
/* Imports a further extent of the arena by its handle (struct device_extent). The caller closes it
 * when nothing computes with it. */
enum error_code device_compute_import(struct device_compute *c,
                                      const uint8_t handle[DEVICE_HANDLE_BYTES], size_t bytes,
                                      struct device_import *out, struct error *e);
void device_compute_close(struct device_compute *c, struct device_import *imported);
/* The results of tasks, [max_rows][d_model]: in host memory, for the rows that are fetched; and on
 * the device. Both are the same memory on an emulated device. */
float *device_compute_rows(const struct device_compute *c);
float *device_compute_own_rows(const struct device_compute *c);

/* Sets the input of the runs that follow: values [n_tokens][d_model], which the caller keeps until
 * the next call. prepared: the same values on a CUDA device (struct device_activations), made
 * earlier on its stream and quantised where the experts need it; NULL: the function uploads them.
 */
void device_compute_input(struct device_compute *c, uint32_t layer, const float *values,
                          const void *prepared, uint32_t n_tokens);
/* Runs the tasks. A task's out lies in the rows; its places are device addresses (NULL only on an
 * emulated device, as for exec_experts). output is SUM, or CONTINUE: it adds to what an earlier run
 * of this input left in the same rows on the device. When the call returns, the rows of tasks with
 * fetch[i] are in host memory too, and the device no longer reads the places. An error: the device
 * is lost to this process. */
enum error_code device_compute_run(struct device_compute *c, const struct expert_task *tasks,
                                   const bool *fetch, uint32_t n_tasks, struct error *e);
/* device_compute_run in steps: queued tasks run in order, and are done when settle returns. Tasks
 * queued after await wait on the device until the slot's flag has reached number (device/module.h).
 * The caller makes sure that it will. */
void device_compute_queue(struct device_compute *c, const struct expert_task *tasks,
                          const bool *fetch, uint32_t n_tasks);
void device_compute_await(struct device_compute *c, uint32_t slot, uint32_t number);
bool device_compute_awaits(const struct device_compute *c); /* false: do not call await */
/* On a CUDA device: queues experts_chosen of module.h, with the input in (struct
 * device_activations) and the rows on the device. */
void device_compute_chosen(struct device_compute *c, const struct device_choice *choice,
                           const void *in, struct device_shared *shared);
/* Copies rows [first, first + n): fetch to host memory, and waits; give to the device, for
 * operations that are called later. */
enum error_code device_compute_fetch(struct device_compute *c, uint32_t first, uint32_t n,
                                     struct error *e);
void device_compute_give(struct device_compute *c, uint32_t first, uint32_t n);
/* Waits until the device has done everything in its stream, also what other modules queued. Called
 * before a timed run too, so that the time is the run's own. */
enum error_code device_compute_settle(struct device_compute *c, struct error *e);

/* For measuring: copies bytes of host memory to memory that the device computes with. NULL: there
 * is not enough memory, or the device is emulated, which computes with host memory itself. drop
 * releases all of them. */
const uint8_t *device_compute_store(struct device_compute *c, const void *from, size_t bytes);
void device_compute_drop(struct device_compute *c);

#endif
