/* What gate.cu and experts.cu share: the table of work that a gate fills (choose.cuh). */
#ifndef MOED_DEVICE_CUDA_GATE_H
#define MOED_DEVICE_CUDA_GATE_H

#include "device/cuda/stream.h"

#ifdef __cplusplus
extern "C" {
#endif

struct choose_call;

/* The table of n rows, in c->tables. False: the operation is refused. */
bool choose_call_of(struct device_stream *s, const struct device_choice *c,
                    const uint32_t *selected, uint32_t n, struct choose_call *out);

#ifdef __cplusplus
}
#endif
#endif
