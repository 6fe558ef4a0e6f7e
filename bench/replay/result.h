/* The result of a policy on a trace: one row of the table. A value that does not exist for a policy
 * (no predictor, no prefill) is NaN and is displayed as a dash. */
#ifndef MOED_REPLAY_RESULT_H
#define MOED_REPLAY_RESULT_H

#include <stdbool.h>
#include <stdint.h>

struct replay_result {
    char policy[64];
    char note[96];  /* how the run differs from the policy's name; "": it does not */
    bool oracle;    /* it knows the future, so it wins against no policy */
    double vram;    /* share of the routed experts' bytes that the device holds */
    uint32_t batch; /* sequences at once */
    uint64_t decode_tokens, prefill_tokens;
    double decode_tokens_per_s, prefill_tokens_per_s;
    double tpot_p50_s, tpot_p99_s; /* time of a decode step */
    double hit_rate;               /* segments of activated experts found on the device */
    double prefetch_accuracy;      /* share of the predicted experts that were activated */
    double fetch_rate; /* share of the predicted experts that were resident before their layer */
    double good_pred;  /* the product (ProMoE) */
    double moved_bytes, wasted_bytes; /* over the link, in prompts too; of those, evicted unused */
    double cpu_busy, link_busy, device_busy; /* shares of the time of decode steps */
    double decision_s; /* mean real time of planning a layer; differs between runs */
    /* only in CSV: shares of the activated experts' segments that the device computed without a
     * load, that it computed after a load, and that the CPU computed */
    double on_device, loaded, on_cpu;
    double layer_s;       /* mean time of a layer's routed experts */
    double prefill_bound; /* the prompts' bound (simulate_prompt_bound) / their time */
    double bound;         /* bound time / time */
};

#endif
