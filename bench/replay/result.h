/* What a policy did with a trace: one row of the table. A figure that does not exist for a policy (no predictor, no prefill) is
 * NaN, and shown as a dash. */
#ifndef MOED_REPLAY_RESULT_H
#define MOED_REPLAY_RESULT_H

#include <stdint.h>

struct replay_result {
    char policy[64];
    double vram;    /* share of the routed experts' bytes that the device holds */
    uint32_t batch; /* sequences at once */
    uint64_t decode_tokens, prefill_tokens;
    double decode_tokens_per_s, prefill_tokens_per_s;
    double tpot_p50_s, tpot_p99_s;           /* time of a decode step */
    double hit_rate;                         /* segments of activated experts found on the device */
    double prefetch_accuracy;                /* of the experts predicted, activated */
    double fetch_rate;                      /* of the experts predicted, there before their layer */
    double good_pred;                        /* the product (ProMoE) */
    double moved_bytes, wasted_bytes;        /* over the link; of those, given up unused */
    double cpu_busy, link_busy, device_busy; /* shares of the time */
    double decision_s; /* real time of planning a layer, mean; differs from run to run */
    /* in CSV alone; of the segments of activated experts, computed from what was on the device, after a load, by the CPU */
    double on_device, loaded, on_cpu;
    double layer_s; /* of a layer's routed experts, mean */
    double bound;   /* share of the bound's speed that was reached: bound time / time */
};

#endif
