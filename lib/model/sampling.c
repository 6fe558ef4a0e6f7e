/* Sampling parameters; see sampling.h. */
#include "model/sampling.h"

#include <ctype.h>
#include <inttypes.h>
#include <stddef.h>
#include <string.h>

struct sampling sampling_neutral(void)
{
#define SAMPLING_FLOAT(name, low, high, neutral) .name = (neutral),
#define SAMPLING_COUNT(name, high, neutral)      .name = (neutral),
    return (struct sampling){SAMPLING_FLOATS(SAMPLING_FLOAT) SAMPLING_COUNTS(SAMPLING_COUNT).order =
                                 SAMPLING_ORDER};
#undef SAMPLING_FLOAT
#undef SAMPLING_COUNT
}

struct sampling sampling_usual(void)
{
    struct sampling s = sampling_neutral();
    s.temperature = 0.8f;
    s.min_p = 0.05f;
    return s;
}

static enum error_code check_float(const char *name, float value, double low, double high,
                                   struct error *e)
{
    if ((double)value >= low && (double)value <= high) /* false for NaN */
        return ERROR_OK;
    return error_set(e, ERROR_USAGE, "%s is %g: expected %g to %g", name, (double)value, low, high);
}

static enum error_code check_count(const char *name, uint32_t value, uint32_t high, struct error *e)
{
    if (value <= high)
        return ERROR_OK;
    return error_set(e, ERROR_USAGE, "%s is %" PRIu32 ": expected 0 to %" PRIu32, name, value,
                     high);
}

enum error_code sampling_set_order(struct sampling *s, const char *letters, size_t n,
                                   struct error *e)
{
    char order[SAMPLING_ORDER_BYTES] = {0};
    for (size_t i = 0; i < n; i++) {
        unsigned char letter = (unsigned char)letters[i];
        if (letter == 0 || !strchr(SAMPLING_ORDER, letter))
            return error_set(e, ERROR_USAGE, "order has the letter '%c': expected letters of %s",
                             isprint(letter) ? letter : '?', SAMPLING_ORDER);
        if (strchr(order, letter))
            return error_set(e, ERROR_USAGE,
                             "order has the letter '%c' twice: give each at most once", letter);
        order[i] = letters[i];
    }
    memcpy(s->order, order, sizeof order);
    return ERROR_OK;
}

enum error_code sampling_check(const struct sampling *s, struct error *e)
{
    enum error_code code = ERROR_OK;
#define SAMPLING_FLOAT(name, low, high, neutral)                                                   \
    if (!code)                                                                                     \
        code = check_float(#name, s->name, low, high, e);
#define SAMPLING_COUNT(name, high, neutral)                                                        \
    if (!code)                                                                                     \
        code = check_count(#name, s->name, high, e);
    SAMPLING_FLOATS(SAMPLING_FLOAT)
    SAMPLING_COUNTS(SAMPLING_COUNT)
#undef SAMPLING_FLOAT
#undef SAMPLING_COUNT
    if (!code && s->mirostat == 1)
        code = error_set(e, ERROR_USAGE, "mirostat is 1: expected 0 (off) or 2");
    struct sampling copy;
    return code ? code : sampling_set_order(&copy, s->order, strnlen(s->order, sizeof s->order), e);
}

/* ---- A model file's defaults ---- */

static const struct {
    const char *key;
    size_t float_at, count_at; /* one of them; the other is NONE */
} keys[] = {
#define NONE             SIZE_MAX
#define AS_FLOAT(member) offsetof(struct sampling, member), NONE
#define AS_COUNT(member) NONE, offsetof(struct sampling, member)
    {"general.sampling.top_k", AS_COUNT(top_k)},
    {"general.sampling.top_p", AS_FLOAT(top_p)},
    {"general.sampling.min_p", AS_FLOAT(min_p)},
    {"general.sampling.xtc_probability", AS_FLOAT(xtc_probability)},
    {"general.sampling.xtc_threshold", AS_FLOAT(xtc_threshold)},
    {"general.sampling.temp", AS_FLOAT(temperature)},
    {"general.sampling.penalty_last_n", AS_COUNT(repetition_window)},
    {"general.sampling.penalty_repeat", AS_FLOAT(repetition_penalty)},
    {"general.sampling.mirostat", AS_COUNT(mirostat)},
    {"general.sampling.mirostat_tau", AS_FLOAT(mirostat_tau)},
    {"general.sampling.mirostat_eta", AS_FLOAT(mirostat_eta)},
};

/* llama.cpp writes these as signed numbers: -1 in penalty_last_n is the whole context, and no more
 * than 0 in top_k is off. */
static enum error_code read_count(const struct gguf *g, const char *key, uint32_t *out,
                                  struct error *e)
{
    const struct gguf_kv *kv = gguf_find(g, key);
    int32_t value;
    if (kv->type != GGUF_I32)
        return gguf_get_u32(g, key, out, e);
    memcpy(&value, kv->data, sizeof value);
    bool whole = value == -1 && strstr(key, "penalty_last_n");
    *out = whole ? UINT32_MAX : value < 0 ? 0 : (uint32_t)value;
    return ERROR_OK;
}

/* *found: whether the file has any of the keys. */
static enum error_code read_keys(const struct gguf *g, struct sampling *s, bool *found,
                                 struct error *e)
{
    enum error_code code = ERROR_OK;
    for (size_t i = 0; i < sizeof keys / sizeof keys[0] && !code; i++) {
        if (!gguf_find(g, keys[i].key))
            continue;
        *found = true;
        if (keys[i].float_at != NONE)
            code = gguf_get_f32(g, keys[i].key, (float *)(void *)((char *)s + keys[i].float_at), e);
        else
            code =
                read_count(g, keys[i].key, (uint32_t *)(void *)((char *)s + keys[i].count_at), e);
    }
    struct gguf_string order;
    if (code || !gguf_find(g, "general.sampling.sequence"))
        return code;
    *found = true;
    code = gguf_get_string(g, "general.sampling.sequence", &order, e);
    return code ? code : sampling_set_order(s, order.data, (size_t)order.len, e);
}

enum error_code sampling_of_model(const struct gguf *g, struct sampling *out, struct error *e)
{
    struct sampling s = sampling_neutral();
    bool found = false;
    s.temperature = 0.8f;
    enum error_code code = read_keys(g, &s, &found, e);
    if (!code && !found)
        s = sampling_usual();
    if (!code && s.mirostat == 1)
        return error_set(e, ERROR_UNSUPPORTED,
                         "general.sampling.mirostat is 1: moed has mirostat 2 only");
    struct error why;
    if (!code && sampling_check(&s, &why))
        code = error_set(e, ERROR_FORMAT, "general.sampling: %s", why.text);
    if (!code)
        *out = s;
    return code;
}
