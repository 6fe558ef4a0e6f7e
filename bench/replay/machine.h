/* A machine that a trace is replayed on: what it can do, from a machine file (bench/replay/machines/NAME.machine), and what
 * a model's experts cost there. docs/replay.md says how each figure enters. */
#ifndef MOED_REPLAY_MACHINE_H
#define MOED_REPLAY_MACHINE_H

#include "base/error.h"
#include "sched/assign.h"
#include "trace/trace.h"

struct machine {
    char name[64], what[160]; /* "desktop"; a line for people */
    double dram_bytes_per_s;  /* read by all cores: what CPU and link share */
    /* of weights, computed by all cores, nothing else running: at most dram_bytes_per_s */
    double cpu_bytes_per_s;
    double cpu_flop_per_s; /* multiply and add are two, of the weights' type, all cores */
    /* of a layer's experts on the CPU, beside computing: wake-up, inputs and sums there and back */
    double cpu_call_s;
    double link_bytes_per_s, link_latency_s; /* host to device, pinned; latency of each copy */
    /* of the first copy that an idle link is asked for: until it begins, and until who waits for it has noticed that it came. Of
     * a calibration; machine files say nothing of it */
    double link_call_s;
    double device_bytes_per_s, device_flop_per_s;
    double device_call_s; /* of a layer's experts on the device, beside computing: launches */
    /* of the thread that plans and predicts: for each activated expert, as `balance` takes it; for each layer, as `next-gate` does without
     * its gate. The other assigners and predictors take their shares of these (deciding.h). */
    double plan_expert_s, predict_call_s;
    double predict_gate_s; /* of a coming layer's gate on the device, beside reading its matrix: launches, the answer */
    double attention_s;   /* of a layer's dense part for one token, beside reading its weights */
    uint64_t vram_bytes, ram_bytes;
};

/* As measured on an AMD EPYC (docs/policies.md), for where nothing else is known. */
#define MACHINE_PLAN_EXPERT_S  60e-9
#define MACHINE_PREDICT_CALL_S 8e-6

/* name: a file, or one of the machines that are built in. ERROR_NOT_FOUND lists those. */
enum error_code machine_find(const char *name, struct machine *out, struct error *e);
enum error_code machine_parse(const char *text, const char *path, struct machine *out,
                              struct error *e);
const char *machine_names(void); /* separated by ", " */

/* What a segment of this layer costs; flops_per_byte: of weights, for one token (2 / bytes of a weight). */
struct sched_costs machine_costs(const struct machine *m, const struct trace_layer *layer,
                                 double flops_per_byte);
/* A layer without its routed experts, for so many tokens. dense_bytes: of this layer. */
double machine_dense_s(const struct machine *m, double dense_bytes, uint32_t n_tokens);

#endif
