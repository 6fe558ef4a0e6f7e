/* Sampling parameters; see sampling.h. */
#include "model/sampling.h"

#include "gguf/cursor.h"

#include <ctype.h>
#include <float.h>
#include <inttypes.h>
#include <math.h>
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

char sampling_letter(const char *name, size_t n)
{
    static const struct {
        const char *name;
        enum sampler_letter letter;
    } names[] = {
        {"penalties", SAMPLER_PENALTIES},
        {"dry", SAMPLER_DRY},
        {"top_n_sigma", SAMPLER_TOP_N_SIGMA},
        {"top-n-sigma", SAMPLER_TOP_N_SIGMA},
        {"top_k", SAMPLER_TOP_K},
        {"top-k", SAMPLER_TOP_K},
        {"typ_p", SAMPLER_TYPICAL},
        {"typ-p", SAMPLER_TYPICAL},
        {"typical_p", SAMPLER_TYPICAL},
        {"typical-p", SAMPLER_TYPICAL},
        {"typical", SAMPLER_TYPICAL},
        {"typ", SAMPLER_TYPICAL},
        {"top_p", SAMPLER_TOP_P},
        {"top-p", SAMPLER_TOP_P},
        {"nucleus", SAMPLER_TOP_P},
        {"min_p", SAMPLER_MIN_P},
        {"min-p", SAMPLER_MIN_P},
        {"xtc", SAMPLER_XTC},
        {"temperature", SAMPLER_TEMPERATURE},
        {"temp", SAMPLER_TEMPERATURE},
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strlen(names[i].name) == n && memcmp(names[i].name, name, n) == 0)
            return (char)names[i].letter;
    return '\0';
}

/* ---- A model file's defaults ---- */

static const struct {
    const char *key;
    size_t float_at, count_at; /* one of them; the other is NONE */
    bool no_usual_min_p;       /* its author has chosen the cut; min_p's row stands below */
} keys[] = {
#define NONE             SIZE_MAX
#define AS_FLOAT(member) offsetof(struct sampling, member), NONE
#define AS_COUNT(member) NONE, offsetof(struct sampling, member)
    {"general.sampling.temp", AS_FLOAT(temperature), true},
    {"general.sampling.top_k", AS_COUNT(top_k), true},
    {"general.sampling.top_p", AS_FLOAT(top_p), true},
    {"general.sampling.min_p", AS_FLOAT(min_p), false},
    {"general.sampling.xtc_probability", AS_FLOAT(xtc_probability), false},
    {"general.sampling.xtc_threshold", AS_FLOAT(xtc_threshold), false},
    {"general.sampling.penalty_last_n", AS_COUNT(repetition_window), false},
    {"general.sampling.penalty_repeat", AS_FLOAT(repetition_penalty), false},
    {"general.sampling.mirostat", AS_COUNT(mirostat), false},
    {"general.sampling.mirostat_tau", AS_FLOAT(mirostat_tau), false},
    {"general.sampling.mirostat_eta", AS_FLOAT(mirostat_eta), false},
};

static void note(struct strbuf *notes, const struct error *why)
{
    if (notes)
        strbuf_printf(notes, "%s%s", notes->len ? "; " : "", why->text);
}

/* Negative numbers mean off, as 0 does; -1 in penalty_last_n is the whole conversation. */
static enum error_code read_count(const char *key, double value, uint32_t *out, struct error *e)
{
    if (value == -1 && strstr(key, "penalty_last_n"))
        value = UINT32_MAX;
    if (!(value <= UINT32_MAX) || value != floor(value))
        return error_set(e, ERROR_FORMAT, "%s is %g: expected a whole number of 32 bits", key,
                         value);
    *out = value < 0 ? 0 : (uint32_t)value;
    return ERROR_OK;
}

static float read_float(double value)
{
    if (value > (double)FLT_MAX)
        return INFINITY;
    return value < 0 ? 0 : (float)value;
}

/* s is unchanged where the key cannot be used. */
static enum error_code read_key(const struct gguf *g, size_t i, struct sampling *s, struct error *e)
{
    struct sampling with = *s;
    struct error why;
    double value = 0;
    enum error_code code = gguf_get_number(g, keys[i].key, &value, e);
    if (!code && keys[i].float_at != NONE)
        *(float *)(void *)((char *)&with + keys[i].float_at) = read_float(value);
    else if (!code)
        code = read_count(keys[i].key, value,
                          (uint32_t *)(void *)((char *)&with + keys[i].count_at), e);
    if (code)
        return code;
    if (sampling_check(&with, &why))
        return error_set(e, ERROR_FORMAT, "%s: %s", keys[i].key, why.text);
    *s = with;
    return ERROR_OK;
}

#define SEQUENCE "general.sampling.sequence"
enum { SEQUENCE_BYTES = 256 };

static enum error_code add_sampler(const char *name, size_t n, char letter, char *order, size_t *at,
                                   struct error *e)
{
    struct shown shown = shown_text(name, n);
    if (!letter)
        return error_set(e, ERROR_FORMAT, SEQUENCE " has '%s', which is no sampler of moed's",
                         shown.text);
    if (memchr(order, letter, *at))
        return error_set(e, ERROR_FORMAT, SEQUENCE " has '%s' a second time", shown.text);
    order[(*at)++] = letter;
    return ERROR_OK;
}

static char letter_of(const char *name, size_t n)
{
    return n == 1 && memchr(SAMPLING_ORDER, *name, SAMPLING_ORDER_BYTES - 1)
               ? *name
               : sampling_letter(name, n);
}

/* Names, or letters, with ';' between them, as llama.cpp writes them. */
static void read_names(struct sampling *s, struct gguf_string text, struct strbuf *notes)
{
    char order[SAMPLING_ORDER_BYTES] = {0};
    size_t n_order = 0;
    struct error e;
    for (const char *at = text.data, *end = at + text.len, *next; at < end; at = next) {
        const char *stop = memchr(at, ';', (size_t)(end - at));
        size_t n = (size_t)((stop ? stop : end) - at);
        next = stop ? stop + 1 : end;
        if (n && add_sampler(at, n, letter_of(at, n), order, &n_order, &e))
            note(notes, &e);
    }
    if (n_order)
        memcpy(s->order, order, sizeof order);
}

static enum error_code read_letters(struct sampling *s, struct gguf_string text, struct error *e)
{
    struct error why;
    if (sampling_set_order(s, text.data, (size_t)text.len, &why))
        return error_set(e, ERROR_FORMAT, SEQUENCE ": %s", why.text);
    return ERROR_OK;
}

static void read_sequence(const struct gguf *g, struct sampling *s, struct strbuf *notes)
{
    struct gguf_string text = {"", 0};
    struct error e;
    enum error_code code = ERROR_OK;
    if (gguf_find(g, SEQUENCE))
        code = gguf_get_string(g, SEQUENCE, &text, &e);
    if (!code && text.len > SEQUENCE_BYTES)
        code = error_set(&e, ERROR_FORMAT, SEQUENCE " has more than %d bytes", SEQUENCE_BYTES);
    if (!code &&
        (memchr(text.data, ';', (size_t)text.len) || sampling_letter(text.data, (size_t)text.len)))
        read_names(s, text, notes);
    else if (!code && text.len)
        code = read_letters(s, text, &e);
    if (code)
        note(notes, &e);
}

struct sampling sampling_of_model(const struct gguf *g, struct strbuf *notes)
{
    struct sampling s = sampling_usual(), neutral = sampling_neutral();
    struct error e;
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        if (!gguf_find(g, keys[i].key))
            continue;
        if (read_key(g, i, &s, &e))
            note(notes, &e);
        else if (keys[i].no_usual_min_p)
            s.min_p = 0;
    }
    read_sequence(g, &s, notes);
    if (s.repetition_window == 0) { /* in llama.cpp: no penalties; here: all tokens */
        s.repetition_window = neutral.repetition_window;
        s.repetition_penalty = neutral.repetition_penalty;
    }
    return s;
}
