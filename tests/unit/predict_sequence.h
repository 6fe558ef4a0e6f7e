/* A made-up model for tests of predictors: tokens in topics, embeddings that belong to words, a
 * residual stream that each layer changes a little, gates that are random matrices. The next gate,
 * the embedding, the trajectory and the recent activations are each correlated with the choices,
 * and no one of them determines the choices. The same random_state gives the same sequence. */
#ifndef MOED_TESTS_PREDICT_SEQUENCE_H
#define MOED_TESTS_PREDICT_SEQUENCE_H

#include "random_numbers.h"

#include "sched/predict/predict.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    SEQ_LAYERS = 8,
    SEQ_FIRST = 1, /* layers with experts: 7 */
    SEQ_EXPERTS = 32,
    SEQ_USED = 4,
    SEQ_D = 24,
    SEQ_TOKENS = 4, /* of a batch, the most */
    SEQ_WORDS = 60,
    SEQ_TOPICS = 6
};

static const struct predict_shape seq_shape = {.n_layers = SEQ_LAYERS,
                                               .first_layer = SEQ_FIRST,
                                               .n_experts = SEQ_EXPERTS,
                                               .n_used = SEQ_USED,
                                               .d_model = SEQ_D,
                                               .max_tokens = SEQ_TOKENS};

struct sequence {
    float gate[SEQ_LAYERS][SEQ_EXPERTS][SEQ_D];
    float word[SEQ_WORDS][SEQ_D], topic[SEQ_TOPICS][SEQ_D], shift[SEQ_LAYERS][SEQ_D];
    float topic_weight, noise, sharpness;
    bool no_ids; /* tokens are shown without their words' numbers */
    uint64_t step;
    struct predict_token tokens[SEQ_TOKENS];
    uint32_t topic_of[SEQ_TOKENS];
    float x[SEQ_TOKENS][SEQ_D]; /* the stream */
    float probability[SEQ_TOKENS][SEQ_EXPERTS];
    uint32_t selected[SEQ_TOKENS][SEQ_USED];
};

/* About normal. */
static inline float seq_random(void)
{
    float sum = 0;
    for (int i = 0; i < 12; i++)
        sum += (float)(random_u64() >> 40) * 0x1p-24f;
    return sum - 6;
}

static inline void seq_fill(float *out, size_t n)
{
    for (size_t i = 0; i < n; i++)
        out[i] = seq_random();
}

static inline void seq_init(struct sequence *s, float topic_weight, float noise)
{
    memset(s, 0, sizeof *s);
    seq_fill(&s->gate[0][0][0], (size_t)SEQ_LAYERS * SEQ_EXPERTS * SEQ_D);
    seq_fill(&s->word[0][0], (size_t)SEQ_WORDS * SEQ_D);
    seq_fill(&s->topic[0][0], (size_t)SEQ_TOPICS * SEQ_D);
    seq_fill(&s->shift[0][0], (size_t)SEQ_LAYERS * SEQ_D);
    s->topic_weight = topic_weight;
    s->noise = noise;
    s->sharpness = 0.4f;
}

static inline void seq_route(const struct sequence *s, uint32_t layer, const float *x,
                             float *probability, uint32_t *selected)
{
    float sum = 0;
    for (uint32_t e = 0; e < SEQ_EXPERTS; e++) {
        float logit = 0;
        for (uint32_t i = 0; i < SEQ_D; i++)
            logit += s->gate[layer][e][i] * x[i];
        sum += probability[e] = expf(s->sharpness * logit);
    }
    for (uint32_t e = 0; e < SEQ_EXPERTS; e++)
        probability[e] /= sum;
    for (uint32_t k = 0; k < SEQ_USED; k++) {
        uint32_t best = UINT32_MAX;
        for (uint32_t e = 0; e < SEQ_EXPERTS; e++) {
            bool taken = false;
            for (uint32_t j = 0; j < k; j++)
                taken |= selected[j] == e;
            if (!taken && (best == UINT32_MAX || probability[e] > probability[best]))
                best = e;
        }
        selected[k] = best;
    }
}

/* predict_trial_gate */
static inline void seq_gate(void *arg, const struct predict_target *target, const float *input,
                            uint32_t n_tokens, uint32_t *predicted_routing)
{
    float probability[SEQ_EXPERTS];
    for (uint32_t t = 0; t < n_tokens; t++)
        seq_route(arg, target->layer, input + (size_t)t * SEQ_D, probability,
                  predicted_routing + (size_t)t * SEQ_USED);
}

typedef void seq_show(void *arg, const struct predict_seen *seen);

/* A step of n tokens, each another request's next; requests last about 40 tokens and topics, which
 * a request keeps, so long too. */
static inline void seq_step(struct sequence *s, uint32_t n, seq_show *show, void *arg)
{
    s->step++;
    for (uint32_t t = 0; t < n; t++) {
        if (s->step == 1 || below(40) == 0) {
            s->tokens[t] = (struct predict_token){.request = s->step * SEQ_TOKENS + t};
            s->topic_of[t] = below(SEQ_TOPICS);
        } else {
            s->tokens[t].position++;
        }
        uint32_t word = (s->topic_of[t] * 7 + below(SEQ_WORDS / 3)) % SEQ_WORDS;
        s->tokens[t].id = s->no_ids ? PREDICT_NO_ID : word;
        for (uint32_t i = 0; i < SEQ_D; i++)
            s->x[t][i] = s->word[word][i];
    }
    struct predict_seen seen = {.step = s->step,
                                .layer = PREDICT_EMBEDDING,
                                .n_tokens = n,
                                .tokens = s->tokens,
                                .hidden = s->x[0]};
    show(arg, &seen);
    for (uint32_t t = 0; t < n; t++)
        for (uint32_t i = 0; i < SEQ_D; i++)
            s->x[t][i] += s->topic_weight * s->topic[s->topic_of[t]][i];
    for (uint32_t layer = SEQ_FIRST; layer < SEQ_LAYERS; layer++) {
        for (uint32_t t = 0; t < n; t++) {
            for (uint32_t i = 0; i < SEQ_D; i++)
                s->x[t][i] += 0.3f * s->shift[layer][i] + s->noise * seq_random();
            seq_route(s, layer, s->x[t], s->probability[t], s->selected[t]);
        }
        seen.layer = layer;
        seen.gate = s->probability[0];
        seen.selected = s->selected[0];
        show(arg, &seen);
    }
}

#endif
