/* Methods of strings that make other strings; see methods.h. */
#include "jinja/methods.h"

#include "base/utf8.h"
#include "jinja/arguments.h"
#include "jinja/format.h"

#include <string.h>

#define NAMES(...) ((const char *const[]){__VA_ARGS__})

/* ---- White space ---- */

static bool in_set(const struct text *set, const struct text *t, size_t from, size_t to)
{
    struct text c = {.data = t->data + from, .len = to - from};
    return text_find(set, &c, 0) != SIZE_MAX;
}

struct value text_strip(struct run *r, const struct text *t, struct value chars, bool left,
                        bool right)
{
    size_t from = 0, to = t->len;
    if (chars.kind == VALUE_MISSING || chars.kind == VALUE_NONE) {
        to = right ? text_trim_end(t) : t->len;
        from = left ? text_skip_space(t) : 0;
        return value_text(text_part(r, t, from < to ? from : to, to));
    }
    const struct text *set = argument_text(r, chars, "strip's argument");
    run_work(r, t->len / 64);
    while (left && from < to) {
        const char *p = t->data + from;
        text_next(&p);
        size_t next = (size_t)(p - t->data);
        if (!in_set(set, t, from, next))
            break;
        from = next;
    }
    while (right && to > from) {
        size_t start = to - 1;
        while (start > from && utf8_continues(t->data[start]))
            start--;
        if (!in_set(set, t, start, to))
            break;
        to = start;
    }
    return value_text(text_part(r, t, from, to));
}

static struct value strip(struct run *r, struct value self, const struct arguments *a)
{
    struct value v;
    arguments_bind(r, "strip", a, NAMES("chars"), 1, 0, &v);
    return text_strip(r, self.text, v, true, true);
}

static struct value lstrip(struct run *r, struct value self, const struct arguments *a)
{
    struct value v;
    arguments_bind(r, "lstrip", a, NAMES("chars"), 1, 0, &v);
    return text_strip(r, self.text, v, true, false);
}

static struct value rstrip(struct run *r, struct value self, const struct arguments *a)
{
    struct value v;
    arguments_bind(r, "rstrip", a, NAMES("chars"), 1, 0, &v);
    return text_strip(r, self.text, v, false, true);
}

/* ---- Splitting ---- */

static void add_part(struct run *r, struct value list, const struct text *t, size_t from, size_t to)
{
    run_work(r, 1);
    sequence_add(r, list.sequence, value_text(text_part(r, t, from, to)));
}

/* The white space at or after `from`, as [*start, *end); false: none. */
static bool find_space(const struct text *t, size_t from, size_t *start, size_t *end)
{
    const char *p = t->data + from, *stop = t->data + t->len;
    *start = SIZE_MAX;
    while (p < stop) {
        size_t at = (size_t)(p - t->data);
        bool space = text_is_space(text_next(&p));
        if (space && *start == SIZE_MAX)
            *start = at;
        else if (!space && *start != SIZE_MAX) {
            *end = at;
            return true;
        }
    }
    *end = t->len;
    return *start != SIZE_MAX;
}

static struct value split_at_space(struct run *r, const struct text *t, int64_t most)
{
    struct value list = value_sequence(r, SEQUENCE_LIST, 0);
    size_t from = text_skip_space(t), start, end;
    for (int64_t n = 0; from < t->len; n++) {
        if (n == most) {
            add_part(r, list, t, from, t->len); /* with the white space at its end */
            return list;
        }
        if (!find_space(t, from, &start, &end))
            start = end = t->len;
        add_part(r, list, t, from, start);
        from = end;
    }
    return list;
}

static struct value split_at(struct run *r, const struct text *t, const struct text *separator,
                             int64_t most)
{
    struct value list = value_sequence(r, SEQUENCE_LIST, 0);
    size_t from = 0;
    run_work(r, t->len / 64);
    for (int64_t n = 0; n != most; n++) {
        size_t at = text_find(t, separator, from);
        if (at == SIZE_MAX)
            break;
        add_part(r, list, t, from, at);
        from = at + separator->len;
    }
    add_part(r, list, t, from, t->len);
    return list;
}

static void reverse(struct sequence *s)
{
    for (size_t i = 0; i < s->count / 2; i++) {
        struct value v = s->items[i];
        s->items[i] = s->items[s->count - 1 - i];
        s->items[s->count - 1 - i] = v;
    }
}

static struct value rsplit_at(struct run *r, const struct text *t, const struct text *separator,
                              int64_t most)
{
    struct value list = value_sequence(r, SEQUENCE_LIST, 0);
    size_t to = t->len;
    run_work(r, t->len / 16);
    for (int64_t n = 0; n != most; n++) {
        size_t at = text_find_last(t, separator, to);
        if (at == SIZE_MAX)
            break;
        add_part(r, list, t, at + separator->len, to);
        to = at;
    }
    add_part(r, list, t, 0, to);
    reverse(list.sequence);
    return list;
}

/* Words from the end: the rest at the front stays one piece of text. */
static struct value rsplit_at_space(struct run *r, const struct text *t, int64_t most)
{
    struct value words = split_at_space(r, t, -1);
    size_t count = words.sequence->count;
    if (most < 0 || count <= (uint64_t)most)
        return words;
    struct value list = value_sequence(r, SEQUENCE_LIST, 0);
    size_t kept = count - (size_t)most; /* words in the rest */
    const struct text *last = words.sequence->items[kept - 1].text;
    add_part(r, list, t, 0, (size_t)(last->data - t->data) + last->len);
    for (size_t i = kept; i < count; i++)
        sequence_add(r, list.sequence, words.sequence->items[i]);
    return list;
}

static struct value split_any(struct run *r, struct value self, const struct arguments *a,
                              bool from_end)
{
    struct value v[2];
    arguments_bind(r, from_end ? "rsplit" : "split", a, NAMES("sep", "maxsplit"), 2, 0, v);
    int64_t most = argument_integer(r, v[1], -1);
    most = most < 0 ? -1 : most;
    if (v[0].kind == VALUE_MISSING || v[0].kind == VALUE_NONE)
        return from_end ? rsplit_at_space(r, self.text, most) : split_at_space(r, self.text, most);
    const struct text *separator = argument_text(r, v[0], "the separator");
    if (separator->len == 0)
        run_refuse(r, "empty separator");
    return from_end ? rsplit_at(r, self.text, separator, most)
                    : split_at(r, self.text, separator, most);
}

static struct value split(struct run *r, struct value self, const struct arguments *a)
{
    return split_any(r, self, a, false);
}

static struct value rsplit(struct run *r, struct value self, const struct arguments *a)
{
    return split_any(r, self, a, true);
}

static bool ends_line(uint32_t c)
{
    return (c >= 0x0a && c <= 0x0d) || (c >= 0x1c && c <= 0x1e) || c == 0x85 || c == 0x2028 ||
           c == 0x2029;
}

static struct value splitlines(struct run *r, struct value self, const struct arguments *a)
{
    struct value keep, list = value_sequence(r, SEQUENCE_LIST, 0);
    arguments_bind(r, "splitlines", a, NAMES("keepends"), 1, 0, &keep);
    const struct text *t = self.text;
    const char *p = t->data, *end = t->data + t->len;
    size_t from = 0;
    while (p < end) {
        size_t at = (size_t)(p - t->data);
        uint32_t c = text_next(&p);
        if (!ends_line(c))
            continue;
        p += c == '\r' && p < end && *p == '\n';
        size_t behind = (size_t)(p - t->data);
        add_part(r, list, t, from, value_truth(keep) ? behind : at);
        from = behind;
    }
    if (from < t->len)
        add_part(r, list, t, from, t->len);
    return list;
}

static struct value partition_any(struct run *r, struct value self, const struct arguments *a,
                                  bool from_end)
{
    struct value v, tuple = value_sequence(r, SEQUENCE_TUPLE, 3);
    arguments_bind(r, "partition", a, NAMES("sep"), 1, 1, &v);
    const struct text *t = self.text, *separator = argument_text(r, v, "the separator");
    if (separator->len == 0)
        run_refuse(r, "empty separator");
    size_t at = from_end ? text_find_last(t, separator, t->len) : text_find(t, separator, 0);
    bool found = at != SIZE_MAX;
    size_t start = found ? at : from_end ? 0 : t->len;
    size_t end = found ? at + separator->len : start;
    add_part(r, tuple, t, 0, start);
    add_part(r, tuple, t, start, end);
    add_part(r, tuple, t, end, t->len);
    return tuple;
}

static struct value partition(struct run *r, struct value self, const struct arguments *a)
{
    return partition_any(r, self, a, false);
}

static struct value rpartition(struct run *r, struct value self, const struct arguments *a)
{
    return partition_any(r, self, a, true);
}

/* ---- Replacing and joining ---- */

/* Python puts `new` between all characters where `old` is empty. */
static struct value replace_empty(struct run *r, const struct text *t, const struct text *new,
                                  int64_t most)
{
    struct text_builder b;
    builder_init(&b, r);
    const char *p = t->data, *end = t->data + t->len;
    for (int64_t n = 0; n != most; n++) {
        run_work(r, 1);
        builder_add_text(&b, new);
        if (p == end)
            break;
        size_t from = (size_t)(p - t->data);
        text_next(&p);
        builder_add_part(&b, t, from, (size_t)(p - t->data));
    }
    builder_add_part(&b, t, (size_t)(p - t->data), t->len);
    return value_text(builder_text(&b));
}

struct value text_replace(struct run *r, const struct text *t, const struct text *old,
                          const struct text *new, int64_t most)
{
    if (old->len == 0)
        return replace_empty(r, t, new, most);
    struct text_builder b;
    builder_init(&b, r);
    size_t from = 0;
    run_work(r, t->len / 64);
    for (int64_t n = 0; n != most; n++) {
        size_t at = text_find(t, old, from);
        if (at == SIZE_MAX)
            break;
        run_work(r, 1);
        builder_add_part(&b, t, from, at);
        builder_add_text(&b, new);
        from = at + old->len;
    }
    if (from == 0)
        return value_text(t);
    builder_add_part(&b, t, from, t->len);
    return value_text(builder_text(&b));
}

static struct value replace(struct run *r, struct value self, const struct arguments *a)
{
    struct value v[3];
    arguments_bind(r, "replace", a, NAMES("old", "new", "count"), 3, 2, v);
    int64_t most = argument_integer(r, v[2], -1);
    return text_replace(r, self.text, argument_text(r, v[0], "replace's argument"),
                        argument_text(r, v[1], "replace's argument"), most < 0 ? -1 : most);
}

static struct value join(struct run *r, struct value self, const struct arguments *a)
{
    struct value v;
    struct text_builder b;
    arguments_bind(r, "join", a, NAMES("iterable"), 1, 1, &v);
    const struct sequence *s = value_elements(r, v);
    builder_init(&b, r);
    for (size_t i = 0; i < s->count; i++) {
        run_work(r, 1);
        if (i)
            builder_add_text(&b, self.text);
        if (s->items[i].kind != VALUE_STRING)
            run_refuse(r, "sequence item %zu: expected str instance, %s found", i,
                       value_type_name(s->items[i]));
        builder_add_text(&b, s->items[i].text);
    }
    return value_text(builder_text(&b));
}

static struct value format(struct run *r, struct value self, const struct arguments *a)
{
    return format_braces(r, self.text, a);
}

static struct value remove_affix(struct run *r, struct value self, const struct arguments *a,
                                 bool prefix)
{
    struct value v;
    arguments_bind(r, prefix ? "removeprefix" : "removesuffix", a, NAMES("affix"), 1, 1, &v);
    const struct text *t = self.text, *affix = argument_text(r, v, "the affix");
    size_t at = prefix ? 0 : t->len - affix->len;
    if (affix->len > t->len || affix->len == 0 ||
        memcmp(t->data + at, affix->data, affix->len) != 0)
        return self;
    return value_text(text_part(r, t, prefix ? affix->len : 0, prefix ? t->len : at));
}

static struct value removeprefix(struct run *r, struct value self, const struct arguments *a)
{
    return remove_affix(r, self, a, true);
}

static struct value removesuffix(struct run *r, struct value self, const struct arguments *a)
{
    return remove_affix(r, self, a, false);
}

/* ---- Padding ---- */

static struct value pad(struct run *r, struct value self, const struct arguments *a,
                        const char *name, int before_of_2)
{
    struct value v[2];
    struct text_builder b;
    arguments_bind(r, name, a, NAMES("width", "fillchar"), 2, 1, v);
    int64_t width = argument_integer(r, v[0], 0), space = width - (int64_t)self.text->chars;
    const struct text *fill =
        v[1].kind == VALUE_MISSING ? text_from(r, " ") : argument_text(r, v[1], "the fill");
    if (fill->chars != 1)
        run_refuse(r, "The fill character must be exactly one character long");
    if (space <= 0)
        return self;
    run_work(r, (uint64_t)space);
    /* center: Python puts the odd one in front where the width is odd */
    int64_t before = before_of_2 == 1 ? space / 2 + (space & width & 1) : before_of_2 ? space : 0;
    builder_init(&b, r);
    for (int64_t i = 0; i < before; i++)
        builder_add_text(&b, fill);
    builder_add_text(&b, self.text);
    for (int64_t i = before; i < space; i++)
        builder_add_text(&b, fill);
    return value_text(builder_text(&b));
}

static struct value ljust(struct run *r, struct value self, const struct arguments *a)
{
    return pad(r, self, a, "ljust", 0);
}

static struct value rjust(struct run *r, struct value self, const struct arguments *a)
{
    return pad(r, self, a, "rjust", 2);
}

static struct value center(struct run *r, struct value self, const struct arguments *a)
{
    return pad(r, self, a, "center", 1);
}

static struct value zfill(struct run *r, struct value self, const struct arguments *a)
{
    struct value v;
    struct text_builder b;
    arguments_bind(r, "zfill", a, NAMES("width"), 1, 1, &v);
    const struct text *t = self.text;
    int64_t space = argument_integer(r, v, 0) - (int64_t)t->chars;
    size_t sign = t->len && (t->data[0] == '+' || t->data[0] == '-');
    builder_init(&b, r);
    builder_add_part(&b, t, 0, sign);
    run_work(r, space > 0 ? (uint64_t)space : 0);
    for (int64_t i = 0; i < space; i++)
        builder_add_literal(&b, "0");
    builder_add_part(&b, t, sign, t->len);
    return value_text(builder_text(&b));
}

/* ---- Case ---- */

static struct value cased(struct run *r, struct value self, const struct arguments *a,
                          const char *name, enum text_case to)
{
    arguments_bind(r, name, a, NULL, 0, 0, NULL);
    return text_change_case(r, self.text, to);
}

static struct value upper(struct run *r, struct value self, const struct arguments *a)
{
    return cased(r, self, a, "upper", CASE_UPPER);
}

static struct value lower(struct run *r, struct value self, const struct arguments *a)
{
    return cased(r, self, a, "lower", CASE_LOWER);
}

static struct value title(struct run *r, struct value self, const struct arguments *a)
{
    return cased(r, self, a, "title", CASE_TITLE);
}

static struct value capitalize(struct run *r, struct value self, const struct arguments *a)
{
    return cased(r, self, a, "capitalize", CASE_CAPITALIZE);
}

static struct value swapcase(struct run *r, struct value self, const struct arguments *a)
{
    return cased(r, self, a, "swapcase", CASE_SWAP);
}

const struct method_entry methods_text[] = {
    {"strip", strip},
    {"lstrip", lstrip},
    {"rstrip", rstrip},
    {"split", split},
    {"rsplit", rsplit},
    {"splitlines", splitlines},
    {"partition", partition},
    {"rpartition", rpartition},
    {"replace", replace},
    {"join", join},
    {"format", format},
    {"removeprefix", removeprefix},
    {"removesuffix", removesuffix},
    {"ljust", ljust},
    {"rjust", rjust},
    {"center", center},
    {"zfill", zfill},
    {"upper", upper},
    {"lower", lower},
    {"title", title},
    {"capitalize", capitalize},
    {"swapcase", swapcase},
    {NULL, NULL},
};
