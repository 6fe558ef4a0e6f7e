/* Values that published models have and their early files lack: the converters of that time wrote
 * no key for them. A model is known by its sizes; values that all models of an architecture share
 * stand in its row (architecture.h). The values are those of the models' own configurations. */
#ifndef MOED_MODEL_PUBLISHED_H
#define MOED_MODEL_PUBLISHED_H

#include "model/params.h"

/* Keys whose value is not the file's, as bits of model_params.published. */
enum {
    PUBLISHED_GATE = 1,
    PUBLISHED_GROUPS = 2,
    PUBLISHED_GROUPS_USED = 4,
    PUBLISHED_BETA_FAST = 8,
    PUBLISHED_BETA_SLOW = 16,
    PUBLISHED_VALUE_SCALE = 32,
    PUBLISHED_TEMPERATURE = 64,
    PUBLISHED_ALL = 127,
};

/* The name of bit i after "ARCH."; NULL after the last. */
const char *published_key(unsigned i);

struct published_groups {
    uint32_t n_groups, n_groups_used; /* as router_params */
};
/* DeepSeek-V2, V3 and R1, by the kind of router, the experts and the width. NULL: another model. */
const struct published_groups *published_groups(const struct model_params *p);

/* Of attention.value_scale: the architecture's, or MiMo-V2.5-Pro's by its experts. 0: there is
 * none. */
float published_value_scale(const struct model_params *p);

struct published_ramp {
    float beta_fast, beta_slow; /* as rope_params */
};
/* Kimi-K2 of 2025, by the experts, the factor and the original context. NULL: another model. */
const struct published_ramp *published_ramp(const struct model_params *p);

/* gpt-oss-20b and 120b, by the width and the rotation: their `truncate` is false, for which GGUF
 * has no key. Other files of that architecture are computed as all readers of GGUF do. */
bool published_exact_ramp(const struct model_params *p);

#endif
