/* A simulated machine: its speeds, from a machine file (bench/replay/machines/NAME.machine), and
 * the cost of a model's experts on it. docs/replay.md explains how replay uses each figure. */
#ifndef MOED_REPLAY_MACHINE_H
#define MOED_REPLAY_MACHINE_H

#include "base/error.h"
#include "sched/assign/assign.h"
#include "trace/trace.h"

struct machine {
    char name[64], what[160]; /* "desktop"; a one-line description */
    double dram_bytes_per_s;  /* read by all cores; CPU and link share it */
    /* weights that all cores compute while nothing else runs; at most dram_bytes_per_s */
    double cpu_bytes_per_s;
    double cpu_flop_per_s; /* all cores, the weights' type; multiply and add count as two */
    /* overhead of a layer's experts on the CPU: wake-up, transfer of inputs and sums */
    double cpu_call_s;
    double link_bytes_per_s, link_latency_s; /* host to device, pinned; latency of each copy */
    /* overhead of the first copy on an idle link: until the copy begins, and until the waiting
     * thread notices its end. From a calibration; machine files do not have it */
    double link_call_s;
    double device_bytes_per_s, device_flop_per_s;
    double device_call_s; /* overhead of a layer's experts on the device: launches */
    /* Time of the engine's thread: planning with `balance` for each activated expert; predicting
     * with `next-gate`, without its gate, for each layer. deciding.h derives the time of the other
     * assigners and predictors from these. */
    double plan_expert_s, predict_call_s;
    double predict_gate_s; /* overhead of a later layer's gate on the device: launches, and the
                              transfer of its result; without reading the matrix */
    double attention_s;    /* a layer's dense part for one token, without reading its weights */
    uint64_t vram_bytes, ram_bytes;
};

/* Measured on an AMD EPYC (bench/results/deciding.md); defaults for other machines. */
#define MACHINE_PLAN_EXPERT_S  60e-9
#define MACHINE_PREDICT_CALL_S 8e-6

/* name: a file, or a built-in machine. The text of ERROR_NOT_FOUND lists the built-in machines. */
enum error_code machine_find(const char *name, struct machine *out, struct error *e);
enum error_code machine_parse(const char *text, const char *path, struct machine *out,
                              struct error *e);
const char *machine_names(void); /* separated by ", " */

/* The costs of a segment of this layer. flops_per_byte: operations for a byte of weights and one
 * token (2 / bytes of a weight). */
struct sched_costs machine_costs(const struct machine *m, const struct trace_layer *layer,
                                 double flops_per_byte);
/* Seconds of a layer without its routed experts. dense_bytes: of this layer. */
double machine_dense_s(const struct machine *m, double dense_bytes, uint32_t n_tokens);

#endif
