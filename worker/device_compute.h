/* Computing experts on a device with memory of its own, out of that memory: on this process's threads for an emulated one, in
 * the kernels of a device module for a real one. The bits are the same (exec/exec.h). One thread, the engine's; before it
 * starts, the one that calibrates. */
#ifndef MOED_WORKER_DEVICE_COMPUTE_H
#define MOED_WORKER_DEVICE_COMPUTE_H

#include "base/error.h"
#include "device/module.h"
#include "exec/exec.h"
#include "memory/memory_client.h"

struct cuda_device;
struct device_compute;

/* A piece of the arena that was imported. */
struct device_import {
    const uint8_t *slots; /* on the device */
    struct shm shared;    /* base NULL: it is the device's */
};

/* Borrows memory, which has an arena, own and cuda (NULL: the device is emulated, and each run takes call_s beside). max_tokens: of a call; max_rows: tokens of
 * all its tasks together. ERROR_MEMORY: the device has not enough. */
enum error_code device_compute_new(const struct memory_client *memory, struct exec *own,
                                   struct cuda_device *cuda, double call_s, uint32_t max_tokens,
                                   uint32_t max_rows, struct device_compute **out, struct error *e);
void device_compute_free(struct device_compute *c); /* takes NULL */

/* What the device calls itself; "" for an emulated one. */
const char *device_compute_name(const struct device_compute *c);
/* The arena's first slot, on the device. */
const uint8_t *device_compute_arena(const struct device_compute *c);
/* Another piece of the arena, by its handle (struct device_piece); the caller closes it, when nothing computes with
 * it. *out: its first slot, on the device. */
enum error_code device_compute_import(struct device_compute *c,
                                      const uint8_t handle[DEVICE_HANDLE_BYTES], size_t bytes,
                                      struct device_import *out, struct error *e);
void device_compute_close(struct device_compute *c, struct device_import *imported);
/* [max_rows][d_model]: where tasks' results go, in host memory, where they are fetched; and on the device, the same where it is
 * emulated. */
float *device_compute_rows(const struct device_compute *c);
float *device_compute_own_rows(const struct device_compute *c);

/* The input of the runs that follow: values [n_tokens][d_model] stays as it is until the next call. there: the same on a CUDA
 * device, written before on its stream; NULL: they are brought there. */
void device_compute_input(struct device_compute *c, uint32_t layer, const float *values,
                          const float *there, uint32_t n_tokens);
/* The tasks, whose out lies in the rows and whose places are on the device (NULL with an emulated one alone: as exec_experts').
 * output is SUM, or CONTINUE onto what an earlier run of this input left in the same rows on the device. When it returns the
 * rows of the tasks with fetch[i] are in host memory too, and the device reads none of the places any more. An error: the device is
 * lost to this process. */
enum error_code device_compute_run(struct device_compute *c, const struct expert_task *tasks,
                                   const bool *fetch, uint32_t n_tasks, struct error *e);
/* The same in pieces: what is queued happens in order, and is done when settle returns. What is queued behind await waits until
 * a slot's flag has the number (device/module.h), by itself: somebody has to see to it that it will. */
void device_compute_queue(struct device_compute *c, const struct expert_task *tasks, const bool *fetch,
                          uint32_t n_tasks);
void device_compute_await(struct device_compute *c, uint32_t slot, uint32_t number);
bool device_compute_awaits(const struct device_compute *c); /* else await is not to be called */
/* On a CUDA device: queues module.h's experts_chosen for a layer, of in (struct device_activations), onto the rows on the device.
 * row_of and tables: as there. */
void device_compute_chosen(struct device_compute *c, uint32_t layer, const void *in,
                           const struct device_places *at, const uint32_t *selected, uint32_t n,
                           uint32_t *row_of, void *tables);
/* Rows [first, first + n): to host memory; and from there to the device, for what is called later. */
enum error_code device_compute_fetch(struct device_compute *c, uint32_t first, uint32_t n,
                                     struct error *e);
void device_compute_give(struct device_compute *c, uint32_t first, uint32_t n);
/* Until the device has done what was queued, here and by others: so that a run's time is its own. */
enum error_code device_compute_settle(struct device_compute *c, struct error *e);

/* For measuring: bytes of host memory, where the device can compute with them. NULL: there is no room, or the emulated device
 * computes with host memory itself. drop: all of them. */
const uint8_t *device_compute_store(struct device_compute *c, const void *from, size_t bytes);
void device_compute_drop(struct device_compute *c);

#endif
