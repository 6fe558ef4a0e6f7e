/* The state of a simulation, shared by simulate.c and simulate_layer.c. */
#ifndef MOED_REPLAY_SIMULATION_H
#define MOED_REPLAY_SIMULATION_H

#include "bench/replay/engine.h"
#include "bench/replay/predicting.h"
#include "bench/replay/simulate.h"
#include "sched/layer/layer.h"

struct simulation {
    const struct replay_run *run;
    const struct trace_shape *shape;
    struct sched_costs *costs; /* [n_layers] */
    struct engine engine;
    struct predicting *predicting;
    struct shared *shared, *own_shared; /* own_shared: the run's own, or NULL */
    const struct routing *routing;
    struct future *future; /* NULL: the policy does not know it */
    uint64_t step;
    const struct predicting_token *tokens; /* of the step */
    uint32_t n_tokens;
    bool prompt;   /* of a prompt */
    bool predicts; /* the step has few enough tokens to predict */
    /* Moving averages of predicted steps: a layer's time with its attention; how much of that its
     * misses take. */
    double layer_s, misses_s;

    void *memory; /* of the arrays below */
    /* the current layer */
    uint32_t *selected; /* [tokens][n_used]; set only if the policy predicts in this step */
    const uint16_t *experts, *workloads; /* [n_activated] */
    uint32_t *done;  /* [n_experts]: leading segments that the device has computed */
    uint32_t *place; /* [n_experts]: an activated expert's place in the plan */
    struct layer *layer;
    struct layer_expert *activated; /* [n_experts] */
    uint32_t n_activated;
    struct layer_plan plan;
    uint8_t *predicted; /* [n_layers][n_experts]: predicted for the layer's next step */
    /* scratch, [n_experts] each */
    float *gate, *gate_sum;
    double *probability;
    struct predicted *best;

    /* sums */
    double *step_s; /* of decoding */
    uint64_t n_steps, most_steps, decode_tokens, prefill_tokens, decode_layers;
    double prefill_s, prefill_bound_s, decode_s, outside_s, device_s;
    double *decode_uses; /* [batch + 1]: segments of activated experts, by their tokens */
    double link_busy_s, cpu_busy_s, device_busy_s; /* while decoding */
    uint64_t segments, hits, on_device,
        loaded; /* on_device, loaded: computed on the device; the rest by the CPU */
    uint64_t fetched, predicted_right,
        fetched_of; /* decode steps only; predicted experts: resident in time, activated, all */
    uint64_t decision_ns, decisions;
};

/* simulate_layer.c */

/* Makes s->layer, which plans each layer of s->engine. False: no memory. */
bool simulate_layer_init(struct simulation *s);
/* A prediction of a later layer was made (layer_predictions_report). */
void simulate_layer_predicted(void *simulation, const struct layer_prediction *prediction);
/* Before a step with a prompt: the least time of a device that computes all of it, and to which the
 * link brings each segment once that is not resident. Both may overlap. */
double simulate_prompt_bound(struct simulation *s, double dense_s);
/* One layer of the step, from its gate to its last expert. */
void simulate_layer(struct simulation *s, uint32_t layer, uint32_t n_tokens);

/* Overhead of one call of the device or of the CPU, in seconds. */
static inline double simulate_call_s(const struct simulation *s, bool device)
{
    return device ? s->run->machine->device_call_s : s->run->machine->cpu_call_s;
}

#endif
