/* What a predictor computed in a run and would compute again in any other run of the trace with the
 * same batch, whatever the policy, the budget and the machine are:
 *
 * - the answers of its background half: predictions, and model updates for the in-line half;
 * - the choice of the gate that the in-line half asks, in the layers in which it asked. (What the
 *   in-line half makes of it depends on when it asked before.)
 *
 * The first run records them, and the others read them. */
#ifndef MOED_REPLAY_RECORDING_H
#define MOED_REPLAY_RECORDING_H

#include "sched/predict/predict.h"

#include <stdbool.h>
#include <stddef.h>

/* A prediction of a later layer. */
struct recorded_answer {
    struct predict_target target;
    uint32_t n, n_known; /* as of predictor_list */
    size_t first;        /* [n_known] in recording.experts */
};

/* A layer, or the embedding before the first one. */
struct recorded_layer {
    uint32_t n_answers, n_updates;
    size_t first_answer, first_update;
    bool has_route; /* no run has asked the gate yet: false */
    size_t first_choice, first_score;
};

/* A list that grows. */
struct recorded_list {
    void *items;
    size_t n, capacity;
};

enum recording_state {
    RECORDING_EMPTY,
    RECORDING_COMPLETE,
    RECORDING_REFUSED, /* it would be too large: each run computes for itself */
};

struct recording {
    enum recording_state state;
    struct recorded_list layers;  /* struct recorded_layer */
    struct recorded_list answers; /* struct recorded_answer */
    struct recorded_list experts; /* struct predicted */
    struct recorded_list updated; /* uint32_t: the layer of each update */
    struct recorded_list updates; /* float: [n][update_floats] */
    struct recorded_list choices; /* uint16_t */
    struct recorded_list scores;  /* float */
    size_t bytes;
};

/* Takes a zeroed one. */
void recording_clear(struct recording *r);

/* Append. If the recording becomes too large or there is no memory, they clear it and refuse it;
 * then they do nothing more. */
void recording_add_layer(struct recording *r);
void recording_answer(struct recording *r, const struct predict_target *target,
                      const struct predicted *experts, uint32_t n, uint32_t n_known);
void recording_update(struct recording *r, uint32_t layer, const float *update, uint32_t n_floats);
/* The run is over. */
void recording_end(struct recording *r);

/* Adds the gate's choice and its n_scores probabilities to a layer, also to one of a complete
 * recording. Does nothing if the recording is refused, or would become too large. */
void recording_route(struct recording *r, size_t layer, const uint32_t *choice, uint32_t n_choices,
                     const float *scores, uint32_t n_scores);

static inline const struct recorded_layer *recording_at(const struct recording *r, size_t i)
{
    return (const struct recorded_layer *)r->layers.items + i;
}

#endif
