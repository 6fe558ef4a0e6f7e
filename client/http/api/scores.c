/* Log-probabilities; see scores.h. */
#include "client/http/api/scores.h"

#include "base/utf8.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define LEAST (-9999.0) /* stands for -inf, which JSON does not have */

void scores_fini(struct scores *s)
{
    free(s->tokens);
    free(s->values);
    free(s->top_tokens);
    free(s->top_values);
    *s = (struct scores){0};
}

static bool grow_one(void *array, size_t count, size_t size)
{
    void *grown = realloc(*(void **)array, (count + 1) * size);
    if (grown)
        *(void **)array = grown;
    return grown != NULL;
}

static bool grow(struct scores *s, size_t count)
{
    if (count <= s->capacity)
        return true;
    size_t capacity = count + count / 2 + 16;
    s->failed = !grow_one(&s->tokens, capacity, sizeof *s->tokens) ||
                !grow_one(&s->values, capacity, sizeof *s->values) ||
                !grow_one(&s->top_tokens, capacity * s->top, sizeof *s->top_tokens) ||
                !grow_one(&s->top_values, capacity * s->top, sizeof *s->top_values);
    s->capacity = s->failed ? s->capacity : capacity;
    return !s->failed;
}

void scores_add(struct scores *s, const uint32_t *tokens, size_t n, const float *values,
                const uint32_t *top_tokens, const float *top_values)
{
    if (s->failed || !n || !grow(s, s->count + n))
        return;
    memcpy(s->tokens + s->count, tokens, n * sizeof *tokens);
    for (size_t i = 0; i < n; i++)
        s->values[s->count + i] = values ? values[i] : NAN;
    if (values && s->top) {
        memcpy(s->top_tokens + s->count * s->top, top_tokens, n * s->top * sizeof *top_tokens);
        memcpy(s->top_values + s->count * s->top, top_values, n * s->top * sizeof *top_values);
    }
    s->count += n;
}

static void value_json(float value, struct strbuf *out)
{
    if (isnan(value))
        strbuf_printf(out, "null");
    else
        strbuf_printf(out, "%.6g", value < LEAST ? LEAST : (double)value);
}

static void token_json(const struct vocabulary *v, uint32_t token, float value, bool id,
                       struct strbuf *out)
{
    struct moed_bytes text = vocabulary_text(v, token);
    strbuf_printf(out, "{");
    if (id)
        strbuf_printf(out, "\"id\":%" PRIu32 ",", token);
    strbuf_printf(out, "\"token\":");
    strbuf_json_string(out, text.data, text.len);
    strbuf_printf(out, ",\"logprob\":");
    value_json(value, out);
    strbuf_printf(out, ",\"bytes\":[");
    for (size_t i = 0; i < text.len; i++)
        strbuf_printf(out, "%s%u", i ? "," : "", (unsigned char)text.data[i]);
    strbuf_printf(out, "]");
}

static void entries_json(const struct scores *s, size_t from, size_t to, const struct vocabulary *v,
                         bool ids, struct strbuf *out)
{
    strbuf_printf(out, "[");
    for (size_t i = from; i < to; i++) {
        strbuf_printf(out, "%s", i > from ? "," : "");
        token_json(v, s->tokens[i], s->values[i], ids, out);
        strbuf_printf(out, ",\"top_logprobs\":[");
        for (size_t k = i * s->top; k < (i + 1) * s->top; k++) {
            strbuf_printf(out, "%s", k > i * s->top ? "," : "");
            token_json(v, s->top_tokens[k], s->top_values[k], ids, out);
            strbuf_printf(out, "}");
        }
        strbuf_printf(out, "]}");
    }
    strbuf_printf(out, "]");
    out->failed = out->failed || s->failed;
}

void scores_json(const struct scores *s, size_t from, size_t to, const struct vocabulary *v,
                 struct strbuf *out)
{
    entries_json(s, from, to, v, false, out);
}

void scores_id_json(const struct scores *s, size_t from, size_t to, const struct vocabulary *v,
                    struct strbuf *out)
{
    entries_json(s, from, to, v, true, out);
}

void scores_tokens_json(const struct scores *s, size_t from, size_t to, struct strbuf *out)
{
    strbuf_printf(out, "[");
    for (size_t i = from; i < to; i++)
        strbuf_printf(out, "%s%" PRIu32, i > from ? "," : "", s->tokens[i]);
    strbuf_printf(out, "]");
    out->failed = out->failed || s->failed;
}

/* As OpenAI has it: a token that is a part of a character is named by its bytes. */
static void name_json(struct moed_bytes text, struct strbuf *out)
{
    if (utf8_is_valid(text.data, text.len)) {
        strbuf_json_string(out, text.data, text.len);
        return;
    }
    strbuf_printf(out, "\"bytes:");
    for (size_t i = 0; i < text.len; i++)
        strbuf_printf(out, "\\\\x%02x", (unsigned char)text.data[i]);
    strbuf_printf(out, "\"");
}

static bool same_text(const struct vocabulary *v, uint32_t a, uint32_t b)
{
    struct moed_bytes one = vocabulary_text(v, a), other = vocabulary_text(v, b);
    return one.len == other.len && memcmp(one.data, other.data, one.len) == 0;
}

/* Whether one of the n tokens has the text of `token`. */
static bool has_text(const uint32_t *tokens, size_t n, uint32_t token, const struct vocabulary *v)
{
    size_t k = 0;
    while (k < n && !same_text(v, tokens[k], token))
        k++;
    return k < n;
}

static void member_json(uint32_t token, float value, const struct vocabulary *v, struct strbuf *out)
{
    name_json(vocabulary_text(v, token), out);
    strbuf_printf(out, ":");
    value_json(value, out);
}

/* The most probable tokens, and as OpenAI has it the one at the place too. Two tokens may have one
 * text: a member has the more probable one's value. */
static void top_object_json(const struct scores *s, size_t i, const struct vocabulary *v,
                            struct strbuf *out)
{
    const uint32_t *tokens = s->top_tokens + i * s->top;
    if (isnan(s->values[i])) {
        strbuf_printf(out, "null");
        return;
    }
    strbuf_printf(out, "{");
    for (size_t k = 0; k < s->top; k++) {
        if (has_text(tokens, k, tokens[k], v))
            continue;
        strbuf_printf(out, "%s", k ? "," : "");
        member_json(tokens[k], s->top_values[i * s->top + k], v, out);
    }
    if (!has_text(tokens, s->top, s->tokens[i], v)) {
        strbuf_printf(out, "%s", s->top ? "," : "");
        member_json(s->tokens[i], s->values[i], v, out);
    }
    strbuf_printf(out, "}");
}

static size_t characters(struct moed_bytes text)
{
    size_t n = 0;
    for (size_t i = 0; i < text.len; i++)
        n += !utf8_continues(text.data[i]);
    return n;
}

void scores_columns_json(const struct scores *s, size_t from, size_t to, const struct vocabulary *v,
                         size_t *offset, struct strbuf *out)
{
    strbuf_printf(out, "{\"tokens\":[");
    for (size_t i = from; i < to; i++) {
        struct moed_bytes text = vocabulary_text(v, s->tokens[i]);
        strbuf_printf(out, "%s", i > from ? "," : "");
        name_json(text, out);
    }
    strbuf_printf(out, "],\"token_logprobs\":[");
    for (size_t i = from; i < to; i++) {
        strbuf_printf(out, "%s", i > from ? "," : "");
        value_json(s->values[i], out);
    }
    strbuf_printf(out, "],\"top_logprobs\":[");
    for (size_t i = from; i < to; i++) {
        strbuf_printf(out, "%s", i > from ? "," : "");
        top_object_json(s, i, v, out);
    }
    strbuf_printf(out, "],\"text_offset\":[");
    for (size_t i = from; i < to; i++) {
        strbuf_printf(out, "%s%zu", i > from ? "," : "", *offset);
        *offset += characters(vocabulary_text(v, s->tokens[i]));
    }
    strbuf_printf(out, "]}");
    out->failed = out->failed || s->failed;
}
