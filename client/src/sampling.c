/* libmoed: sampling parameters; see sampling.h. */
#include "client/src/sampling.h"

#include <stdlib.h>
#include <string.h>

/* Parameters for which 0 is a value of its own, and those for which it means the usual value. */
#define PLAIN_FLOATS(X)                                                                            \
    X(temperature)                                                                                 \
    X(dynamic_temperature)                                                                         \
    X(min_p)                                                                                       \
    X(top_n_sigma)                                                                                 \
    X(xtc_probability)                                                                             \
    X(presence_penalty)                                                                            \
    X(frequency_penalty)                                                                           \
    X(dry_multiplier)
#define FLOATS_OF_USE(X)                                                                           \
    X(dynamic_exponent)                                                                            \
    X(top_p)                                                                                       \
    X(typical_p)                                                                                   \
    X(xtc_threshold)                                                                               \
    X(repetition_penalty)                                                                          \
    X(dry_base)                                                                                    \
    X(mirostat_tau)                                                                                \
    X(mirostat_eta)                                                                                \
    X(mirostat_mu)
#define PLAIN_COUNTS(X)                                                                            \
    X(top_k)                                                                                       \
    X(dry_window)                                                                                  \
    X(mirostat)
#define COUNTS_OF_USE(X)                                                                           \
    X(repetition_window)                                                                           \
    X(dry_allowed_length)

void moed_sampling_init(struct moed_sampling *sampling, size_t size)
{
    struct moed_sampling s = {.size = size, .seed = MOED_RANDOM_SEED};
#define INIT_FLOAT(name) s.name = MOED_DEFAULT_FLOAT;
#define INIT_COUNT(name) s.name = MOED_DEFAULT_COUNT;
    PLAIN_FLOATS(INIT_FLOAT)
    FLOATS_OF_USE(INIT_FLOAT)
    PLAIN_COUNTS(INIT_COUNT)
    COUNTS_OF_USE(INIT_COUNT)
    memset(sampling, 0, size);
    memcpy(sampling, &s, size < sizeof s ? size : sizeof s);
}

static void fill_parameters(Moed__V1__Sampling *out, const struct moed_sampling *in)
{
    bool any_default = false;
#define SEND_UNLESS(name, is_default, is_usual)                                                    \
    any_default |= (is_default);                                                                   \
    out->has_##name = !(is_default) && !(is_usual);                                                \
    out->name = in->name;
#define SEND_FLOAT(name)        SEND_UNLESS(name, in->name == MOED_DEFAULT_FLOAT, false)
#define SEND_COUNT(name)        SEND_UNLESS(name, in->name == MOED_DEFAULT_COUNT, false)
#define SEND_FLOAT_OF_USE(name) SEND_UNLESS(name, in->name == MOED_DEFAULT_FLOAT, in->name == 0)
#define SEND_COUNT_OF_USE(name) SEND_UNLESS(name, in->name == MOED_DEFAULT_COUNT, in->name == 0)
    PLAIN_FLOATS(SEND_FLOAT)
    PLAIN_COUNTS(SEND_COUNT)
    FLOATS_OF_USE(SEND_FLOAT_OF_USE)
    COUNTS_OF_USE(SEND_COUNT_OF_USE)
    out->has_model_defaults = true;
    out->model_defaults = any_default;
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
#define TAKE(name)                                                                                 \
    if (m->has_##name)                                                                             \
        s.name = m->name;
    PLAIN_FLOATS(TAKE)
    PLAIN_COUNTS(TAKE)
    FLOATS_OF_USE(TAKE)
    COUNTS_OF_USE(TAKE)
    return s;
}
