/* The interface of a kind of device (emulated, CUDA) to device_compute.c. */
#ifndef MOED_WORKER_LINKS_DEVICE_COMPUTE_INTERNAL_H
#define MOED_WORKER_LINKS_DEVICE_COMPUTE_INTERNAL_H

#include "device_compute.h"

struct device_compute_kind {
    void (*free)(struct device_compute *c);
    void (*input)(struct device_compute *c, uint32_t layer, const float *values,
                  const void *prepared, uint32_t n_tokens);
    void (*queue)(struct device_compute *c, const struct expert_task *tasks, const bool *fetch,
                  uint32_t n_tasks);
    void (*await)(struct device_compute *c, uint32_t slot,
                  uint32_t number); /* NULL: not supported */
    /* NULL: the device has no device-only layers */
    void (*chosen)(struct device_compute *c, const struct device_choice *choice, const void *in,
                   struct device_shared *shared);
    enum error_code (*fetch)(struct device_compute *c, uint32_t first, uint32_t n, struct error *e);
    void (*give)(struct device_compute *c, uint32_t first, uint32_t n);
    enum error_code (*settle)(struct device_compute *c, struct error *e);
    const uint8_t *(*store)(struct device_compute *c, const void *from, size_t bytes);
    void (*drop)(struct device_compute *c);
    enum error_code (*import)(struct device_compute *c, const uint8_t handle[DEVICE_HANDLE_BYTES],
                              size_t bytes, struct device_import *out, struct error *e);
    void (*close)(struct device_compute *c, struct device_import *imported);
};

/* The first member of each kind's own struct. */
struct device_compute {
    const struct device_compute_kind *kind;
    const struct memory_client *memory;
    struct exec *own;
    uint32_t max_tokens, max_rows;
    const char *name;
    const uint8_t *arena;
    bool awaits;
    float *rows, *own_rows;
};

/* base: complete except for kind, name, arena, awaits and the rows. */
enum error_code device_compute_emu_new(const struct device_compute *base, double call_s,
                                       struct device_compute **out, struct error *e);
enum error_code device_compute_cuda_new(const struct device_compute *base, struct cuda_device *cuda,
                                        struct device_compute **out, struct error *e);

#endif
