/* libmoed: sampling parameters; see sampling.h. */
#include "client/src/sampling.h"

#include <stdlib.h>
#include <string.h>

/* X(name, usual). usual: what 0 means; it precedes the model's default. Where it is 0, 0 is a value
 * of its own. */
#define FLOATS(X)                                                                                  \
    X(temperature, 0)                                                                              \
    X(dynamic_temperature, 0)                                                                      \
    X(dynamic_exponent, 1)                                                                         \
    X(top_p, 1)                                                                                    \
    X(min_p, 0)                                                                                    \
    X(typical_p, 1)                                                                                \
    X(top_n_sigma, 0)                                                                              \
    X(xtc_probability, 0)                                                                          \
    X(xtc_threshold, 0.1f)                                                                         \
    X(repetition_penalty, 1)                                                                       \
    X(presence_penalty, 0)                                                                         \
    X(frequency_penalty, 0)                                                                        \
    X(dry_multiplier, 0)                                                                           \
    X(dry_base, 1.75f)                                                                             \
    X(mirostat_tau, 5)                                                                             \
    X(mirostat_eta, 0.1f)                                                                          \
    X(mirostat_mu, 0)
#define COUNTS(X)                                                                                  \
    X(top_k, 0)                                                                                    \
    X(repetition_window, 64)                                                                       \
    X(dry_allowed_length, 2)                                                                       \
    X(dry_window, 0)                                                                               \
    X(mirostat, 0)

void moed_sampling_init(struct moed_sampling *sampling, size_t size)
{
    struct moed_sampling s = {.size = size, .seed = MOED_RANDOM_SEED};
#define INIT_FLOAT(name, usual) s.name = MOED_DEFAULT_FLOAT;
#define INIT_COUNT(name, usual) s.name = MOED_DEFAULT_COUNT;
    FLOATS(INIT_FLOAT)
    COUNTS(INIT_COUNT)
    memset(sampling, 0, size);
    memcpy(sampling, &s, size < sizeof s ? size : sizeof s);
}

/* Whether any parameter is the model's default. */
static bool has_defaults(const struct moed_sampling *in)
{
    bool any = false;
#define IS_DEFAULT_FLOAT(name, usual) any |= in->name == MOED_DEFAULT_FLOAT;
#define IS_DEFAULT_COUNT(name, usual) any |= in->name == MOED_DEFAULT_COUNT;
    FLOATS(IS_DEFAULT_FLOAT)
    COUNTS(IS_DEFAULT_COUNT)
    return any;
}

static void fill_parameters(Moed__V1__Sampling *out, const struct moed_sampling *in)
{
    bool defaults = has_defaults(in);
/* Without the model's defaults the worker has the usual value. */
#define SEND(name, none, usual)                                                                    \
    out->has_##name = in->name != (none) && (in->name != 0 || (usual) == 0 || defaults);           \
    out->name = in->name == 0 ? (usual) : in->name;
#define SEND_FLOAT(name, usual) SEND(name, MOED_DEFAULT_FLOAT, usual)
#define SEND_COUNT(name, usual) SEND(name, MOED_DEFAULT_COUNT, usual)
    FLOATS(SEND_FLOAT)
    COUNTS(SEND_COUNT)
    out->has_mirostat_mu &= in->mirostat_mu != 0; /* 0: twice mirostat_tau */
    out->has_model_defaults = true;
    out->model_defaults = defaults;
}

bool sampling_message_init(struct sampling_message *m, const struct moed_sampling *s, uint64_t seed)
{
    *m = (struct sampling_message){
        .message = MOED__V1__SAMPLING__INIT,
        .biases = calloc(s->bias_count + 1, sizeof *m->biases),
        .bias_pointers = calloc(s->bias_count + 1, sizeof *m->bias_pointers),
        .breakers = calloc(s->dry_breaker_count + 1, sizeof *m->breakers)};
    if (!m->biases || !m->bias_pointers || !m->breakers) {
        sampling_message_fini(m);
        return false;
    }
    fill_parameters(&m->message, s);
    m->message.order = (char *)s->order; /* packing only reads */
    m->message.has_seed = true;
    m->message.seed = s->seed == MOED_RANDOM_SEED ? seed : s->seed;
    for (size_t i = 0; i < s->bias_count; i++) {
        const struct moed_bias *b = &s->bias[i];
        m->biases[i] = (Moed__V1__LogitBias)MOED__V1__LOGIT_BIAS__INIT;
        m->biases[i].has_token = m->biases[i].has_bias = m->biases[i].has_text = true;
        m->biases[i].token = b->token;
        m->biases[i].bias = b->bias;
        m->biases[i].text = (ProtobufCBinaryData){b->text.len, (uint8_t *)b->text.data};
        m->bias_pointers[i] = &m->biases[i];
    }
    m->message.n_bias = s->bias_count;
    m->message.bias = m->bias_pointers;
    for (size_t i = 0; i < s->dry_breaker_count; i++)
        m->breakers[i] =
            (ProtobufCBinaryData){s->dry_breakers[i].len, (uint8_t *)s->dry_breakers[i].data};
    m->message.n_dry_breakers = s->dry_breaker_count;
    m->message.dry_breakers = m->breakers;
    return true;
}

void sampling_message_fini(struct sampling_message *m)
{
    free(m->biases);
    free(m->bias_pointers);
    free(m->breakers);
}

struct moed_sampling sampling_from_message(const Moed__V1__Sampling *m, const char *order)
{
    struct moed_sampling s = {.size = sizeof s, .order = order};
    if (!m)
        return s;
#define TAKE(name, usual)                                                                          \
    if (m->has_##name)                                                                             \
        s.name = m->name;
    FLOATS(TAKE)
    COUNTS(TAKE)
    return s;
}
