/* Log-probabilities; see scores.h. */
#include "client/http/api/scores.h"

#include "base/utf8.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define LEAST (-9999.0f) /* stands for -inf, which JSON does not have */

void scores_fini(struct scores *s)
{
    free(s->tokens);
    free(s->values);
    free(s->top_tokens);
    free(s->top_values);
    free(s->offsets);
    for (int i = 0; i < SCORES_TEXTS; i++)
        strbuf_fini(&s->kept[i]);
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
                !grow_one(&s->offsets, capacity, sizeof *s->offsets) ||
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
    memset(s->offsets + s->count, 0, n * sizeof *s->offsets);
    for (size_t i = 0; i < n; i++)
        s->values[s->count + i] = values ? values[i] : NAN;
    if (values && s->top) {
        memcpy(s->top_tokens + s->count * s->top, top_tokens, n * s->top * sizeof *top_tokens);
        memcpy(s->top_values + s->count * s->top, top_values, n * s->top * sizeof *top_values);
    }
    s->count += n;
}

void scores_append(struct scores *s, const struct scores *from, size_t begin, size_t end)
{
    if (begin == end)
        return;
    scores_add(s, from->tokens + begin, end - begin, from->values + begin,
               from->top_tokens + begin * from->top, from->top_values + begin * from->top);
    scores_place(s, from->offsets + begin, end - begin);
}

void scores_place(struct scores *s, const uint32_t *offsets, size_t n)
{
    if (!s->failed)
        memcpy(s->offsets + s->count - n, offsets, n * sizeof *offsets);
}

static void value_json(float value, struct strbuf *out)
{
    if (isnan(value))
        strbuf_text(out, "null");
    else
        strbuf_float(out, value < LEAST ? LEAST : value);
}

static void id_name_json(uint32_t token, struct strbuf *out)
{
    strbuf_text(out, "\"token_id:");
    strbuf_uint(out, token);
    strbuf_text(out, "\"");
}

static void token_json(const struct scores *s, const struct vocabulary *v, uint32_t token,
                       float value, bool id, struct strbuf *out)
{
    struct moed_bytes text = vocabulary_text(v, token);
    strbuf_text(out, "{");
    if (id) {
        strbuf_text(out, "\"id\":");
        strbuf_uint(out, token);
        strbuf_text(out, ",");
    }
    strbuf_text(out, "\"token\":");
    if (s->as_ids)
        id_name_json(token, out);
    else
        strbuf_json_string(out, text.data, text.len);
    strbuf_text(out, ",\"logprob\":");
    value_json(value, out);
    strbuf_text(out, ",\"bytes\":");
    strbuf_json_bytes(out, text.data, text.len);
}

static void row_json(const struct scores *s, size_t i, const struct vocabulary *v, bool id,
                     struct strbuf *out)
{
    token_json(s, v, s->tokens[i], s->values[i], id, out);
    strbuf_text(out, ",\"top_logprobs\":[");
    for (size_t k = i * s->top; k < (i + 1) * s->top; k++) {
        strbuf_text(out, k > i * s->top ? "," : "");
        token_json(s, v, s->top_tokens[k], s->top_values[k], id, out);
        strbuf_text(out, "}");
    }
    strbuf_text(out, "]}");
}

/* first: the place that has no comma before it. */
static void rows_json(const struct scores *s, size_t first, size_t from, size_t to,
                      const struct vocabulary *v, bool ids, struct strbuf *out)
{
    for (size_t i = from; i < to; i++) {
        strbuf_text(out, i > first ? "," : "");
        row_json(s, i, v, ids, out);
    }
}

/* How many of [from, to) are kept. */
static size_t kept_of(const struct scores *s, size_t from, size_t to)
{
    return from == 0 && s->kept_to <= to ? s->kept_to : 0;
}

static void append_kept(const struct scores *s, int text, struct strbuf *out)
{
    strbuf_append(out, s->kept[text].data, s->kept[text].len); /* s->failed: only a part of it */
}

static void entries_json(const struct scores *s, size_t from, size_t to, const struct vocabulary *v,
                         bool ids, struct strbuf *out)
{
    size_t kept = kept_of(s, from, to);
    strbuf_text(out, "[");
    if (kept)
        append_kept(s, 0, out);
    rows_json(s, from, from + kept, to, v, ids, out);
    strbuf_text(out, "]");
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
    strbuf_text(out, "[");
    for (size_t i = from; i < to; i++) {
        strbuf_text(out, i > from ? "," : "");
        strbuf_uint(out, s->tokens[i]);
    }
    strbuf_text(out, "]");
    out->failed = out->failed || s->failed;
}

/* As OpenAI has it: a token that is a part of a character is named by its bytes. */
static void name_json(struct moed_bytes text, struct strbuf *out)
{
    if (utf8_is_valid(text.data, text.len)) {
        strbuf_json_string(out, text.data, text.len);
        return;
    }
    strbuf_text(out, "\"bytes:");
    for (size_t i = 0; i < text.len; i++)
        strbuf_printf(out, "\\\\x%02x", (unsigned char)text.data[i]);
    strbuf_text(out, "\"");
}

static bool same_text(const struct vocabulary *v, uint32_t a, uint32_t b)
{
    struct moed_bytes one = vocabulary_text(v, a), other = vocabulary_text(v, b);
    return one.len == other.len && memcmp(one.data, other.data, one.len) == 0;
}

/* Texts that were seen: a bit for all that have the same length and ends. Most texts differ in
 * these, and are compared with none. */
struct seen_texts {
    uint64_t bits[16];
};

static bool see_text(struct seen_texts *seen, struct moed_bytes text)
{
    unsigned first = text.len ? (unsigned char)text.data[0] : 0,
             last = text.len ? (unsigned char)text.data[text.len - 1] : 0;
    unsigned bit = (unsigned)(text.len * 331 + first * 37 + last) % 1024;
    bool before = seen->bits[bit / 64] >> (bit % 64) & 1;
    seen->bits[bit / 64] |= 1ull << (bit % 64);
    return before;
}

/* Whether one of the n tokens, which were all seen, has the text of `token`. */
static bool has_text(struct seen_texts *seen, const uint32_t *tokens, size_t n, uint32_t token,
                     const struct vocabulary *v)
{
    size_t k = 0;
    if (!see_text(seen, vocabulary_text(v, token)))
        return false;
    while (k < n && !same_text(v, tokens[k], token))
        k++;
    return k < n;
}

static void cell_name_json(const struct scores *s, uint32_t token, const struct vocabulary *v,
                           struct strbuf *out)
{
    if (s->as_ids)
        id_name_json(token, out);
    else
        name_json(vocabulary_text(v, token), out);
}

static void member_json(const struct scores *s, uint32_t token, float value,
                        const struct vocabulary *v, struct strbuf *out)
{
    cell_name_json(s, token, v, out);
    strbuf_text(out, ":");
    value_json(value, out);
}

static bool has_id(const uint32_t *tokens, size_t n, uint32_t token)
{
    size_t k = 0;
    while (k < n && tokens[k] != token)
        k++;
    return k < n;
}

/* The most probable tokens, and as OpenAI has it the one at the place too. Two tokens may have one
 * text: a member has the more probable one's value. */
static void top_object_json(const struct scores *s, size_t i, const struct vocabulary *v,
                            struct strbuf *out)
{
    const uint32_t *tokens = s->top_tokens + i * s->top;
    struct seen_texts seen = {0};
    if (isnan(s->values[i])) {
        strbuf_text(out, "null");
        return;
    }
    strbuf_text(out, "{");
    for (size_t k = 0; k < s->top; k++) {
        if (!s->as_ids && has_text(&seen, tokens, k, tokens[k], v))
            continue;
        strbuf_text(out, k ? "," : "");
        member_json(s, tokens[k], s->top_values[i * s->top + k], v, out);
    }
    if (s->as_ids ? !has_id(tokens, s->top, s->tokens[i])
                  : !has_text(&seen, tokens, s->top, s->tokens[i], v)) {
        strbuf_text(out, s->top ? "," : "");
        member_json(s, s->tokens[i], s->values[i], v, out);
    }
    strbuf_text(out, "}");
}

typedef void write_cell(const struct scores *s, size_t i, const struct vocabulary *v,
                        struct strbuf *out);

static void name_cell(const struct scores *s, size_t i, const struct vocabulary *v,
                      struct strbuf *out)
{
    cell_name_json(s, s->tokens[i], v, out);
}

static void value_cell(const struct scores *s, size_t i, const struct vocabulary *v,
                       struct strbuf *out)
{
    value_json(s->values[i], out);
}

static void offset_cell(const struct scores *s, size_t i, const struct vocabulary *v,
                        struct strbuf *out)
{
    strbuf_uint(out, s->offsets[i]);
}

static const struct {
    const char *head;
    write_cell *write;
} columns[SCORES_TEXTS] = {{"{\"tokens\":[", name_cell},
                           {"],\"token_logprobs\":[", value_cell},
                           {"],\"top_logprobs\":[", top_object_json},
                           {"],\"text_offset\":[", offset_cell}};

static void column_json(const struct scores *s, int column, size_t first, size_t from, size_t to,
                        const struct vocabulary *v, struct strbuf *out)
{
    for (size_t i = from; i < to; i++) {
        strbuf_text(out, i > first ? "," : "");
        columns[column].write(s, i, v, out);
    }
}

void scores_columns_json(const struct scores *s, size_t from, size_t to, const struct vocabulary *v,
                         struct strbuf *out)
{
    size_t kept = kept_of(s, from, to);
    for (int i = 0; i < SCORES_TEXTS; i++) {
        strbuf_text(out, columns[i].head);
        if (kept)
            append_kept(s, i, out);
        column_json(s, i, from, from + kept, to, v, out);
    }
    strbuf_text(out, "]}");
    out->failed = out->failed || s->failed;
}

void scores_keep(struct scores *s, size_t to, const struct vocabulary *v, enum scores_form form)
{
    if (s->failed || to <= s->kept_to)
        return;
    if (form == SCORES_COLUMNS) {
        for (int i = 0; i < SCORES_TEXTS; i++)
            column_json(s, i, 0, s->kept_to, to, v, &s->kept[i]);
    } else {
        rows_json(s, 0, s->kept_to, to, v, form == SCORES_ID_ROWS, &s->kept[0]);
    }
    for (int i = 0; i < SCORES_TEXTS; i++)
        s->failed = s->failed || s->kept[i].failed;
    s->kept_to = to;
}
