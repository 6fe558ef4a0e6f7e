/* Methods of strings that look something up, and the change of case; see methods.h. */
#include "jinja/methods.h"

#include "base/utf8.h"
#include "jinja/arguments.h"

#include <locale.h>
#include <pthread.h>
#include <string.h>
#include <wctype.h>

#define NAMES(...) ((const char *const[]){__VA_ARGS__})

/* ---- Characters, by glibc's tables for UTF-8 whatever the program's locale is ---- */

static locale_t locale_of_unicode; /* 0: the system has none; then only ASCII has case */

static void open_locale(void)
{
    locale_of_unicode = newlocale(LC_CTYPE_MASK, "C.UTF-8", (locale_t)0);
}

static locale_t unicode_locale(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, open_locale);
    return locale_of_unicode;
}

static uint32_t to_upper(uint32_t c)
{
    locale_t l = unicode_locale();
    return c >= 'a' && c <= 'z' ? c - 32 : c < 0x80 || !l ? c : (uint32_t)towupper_l((wint_t)c, l);
}

static uint32_t to_lower(uint32_t c)
{
    locale_t l = unicode_locale();
    return c >= 'A' && c <= 'Z' ? c + 32 : c < 0x80 || !l ? c : (uint32_t)towlower_l((wint_t)c, l);
}

static bool is_letter(uint32_t c)
{
    locale_t l = unicode_locale();
    bool ascii = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    return c < 0x80 ? ascii : l && iswalpha_l((wint_t)c, l);
}

static bool is_upper(uint32_t c)
{
    return to_lower(c) != c;
}

static bool is_lower(uint32_t c)
{
    return to_upper(c) != c || c == 0xdf;
}

static bool is_digit(uint32_t c)
{
    return c >= '0' && c <= '9';
}

/* ---- Case ---- */

static void add_upper(struct text_builder *b, uint32_t c, bool request, bool whole)
{
    char bytes[4];
    if (c == 0xdf) /* the one letter of Latin-1 whose capital is two */
        builder_add(b, whole ? "SS" : "Ss", 2, request);
    else
        builder_add(b, bytes, utf8_encode(to_upper(c), bytes), request);
}

struct value text_change_case(struct run *r, const struct text *t, enum text_case to)
{
    struct text_builder b;
    bool in_word = false;
    builder_init(&b, r);
    run_work(r, t->len / 16);
    for (const char *p = t->data, *end = t->data + t->len; p < end;) {
        size_t at = (size_t)(p - t->data);
        uint32_t c = text_next(&p);
        bool request = text_from_request(t, at);
        bool capital = to == CASE_UPPER || (to == CASE_SWAP && !is_upper(c)) ||
                       (to == CASE_TITLE && !in_word) || (to == CASE_CAPITALIZE && at == 0);
        char bytes[4];
        if (capital)
            add_upper(&b, c, request, to == CASE_UPPER || to == CASE_SWAP);
        else
            builder_add(&b, bytes, utf8_encode(to_lower(c), bytes), request);
        in_word = is_upper(c) || is_lower(c);
    }
    return value_text(builder_text(&b));
}

/* ---- Tests of all characters ---- */

/* True: there is a character, and each is of the kind. */
static struct value all(struct run *r, struct value self, const struct arguments *a,
                        bool is_kind(uint32_t c))
{
    const struct text *t = self.text;
    arguments_bind(r, "is...", a, NULL, 0, 0, NULL);
    run_work(r, t->len / 16);
    for (const char *p = t->data, *end = t->data + t->len; p < end;)
        if (!is_kind(text_next(&p)))
            return value_bool(false);
    return value_bool(t->len > 0);
}

static bool is_letter_or_digit(uint32_t c)
{
    return is_letter(c) || is_digit(c);
}

static struct value isalpha_method(struct run *r, struct value self, const struct arguments *a)
{
    return all(r, self, a, is_letter);
}

static struct value isdigit_method(struct run *r, struct value self, const struct arguments *a)
{
    return all(r, self, a, is_digit);
}

static struct value isalnum_method(struct run *r, struct value self, const struct arguments *a)
{
    return all(r, self, a, is_letter_or_digit);
}

static struct value isspace_method(struct run *r, struct value self, const struct arguments *a)
{
    return all(r, self, a, text_is_space);
}

/* True: there is a letter of this case, and none of the other. */
static struct value one_case(struct run *r, struct value self, bool upper)
{
    const struct text *t = self.text;
    bool any = false;
    run_work(r, t->len / 16);
    for (const char *p = t->data, *end = t->data + t->len; p < end;) {
        uint32_t c = text_next(&p);
        if (upper ? is_lower(c) : is_upper(c))
            return value_bool(false);
        any |= upper ? is_upper(c) : is_lower(c);
    }
    return value_bool(any);
}

static struct value isupper_method(struct run *r, struct value self, const struct arguments *a)
{
    arguments_bind(r, "isupper", a, NULL, 0, 0, NULL);
    return one_case(r, self, true);
}

static struct value islower_method(struct run *r, struct value self, const struct arguments *a)
{
    arguments_bind(r, "islower", a, NULL, 0, 0, NULL);
    return one_case(r, self, false);
}

/* ---- Beginnings, ends, places ---- */

static bool has_affix(const struct text *t, const struct text *affix, bool at_end)
{
    if (affix->len > t->len)
        return false;
    return affix->len == 0 ||
           memcmp(t->data + (at_end ? t->len - affix->len : 0), affix->data, affix->len) == 0;
}

/* The part of t that start and end, as arguments of a method, leave; false: they are crossed. */
static bool bounded(struct run *r, const struct text **t, const struct value bound[2])
{
    int64_t length = (int64_t)(*t)->chars;
    int64_t from = bound[0].kind == VALUE_NONE ? 0 : argument_integer(r, bound[0], 0);
    int64_t to = bound[1].kind == VALUE_NONE ? length : argument_integer(r, bound[1], length);
    from = from < 0 ? (from + length < 0 ? 0 : from + length) : from;
    to = to < 0 ? (to + length < 0 ? 0 : to + length) : to > length ? length : to;
    if (from > to)
        return false;
    *t = text_part(r, *t, text_offset(*t, (size_t)from), text_offset(*t, (size_t)to));
    return true;
}

static struct value with_affix(struct run *r, struct value self, const struct arguments *a,
                               bool at_end)
{
    struct value v[3];
    const struct text *t = self.text;
    arguments_bind(r, at_end ? "endswith" : "startswith", a, NAMES("affix", "start", "end"), 3, 1,
                   v);
    if (!bounded(r, &t, &v[1]))
        return value_bool(false);
    if (v[0].kind != VALUE_SEQUENCE || v[0].sequence->kind != SEQUENCE_TUPLE)
        return value_bool(has_affix(t, argument_text(r, v[0], "the affix"), at_end));
    bool any = false;
    for (size_t i = 0; i < v[0].sequence->count && !any; i++)
        any = has_affix(t, argument_text(r, v[0].sequence->items[i], "the affix"), at_end);
    return value_bool(any);
}

static struct value startswith(struct run *r, struct value self, const struct arguments *a)
{
    return with_affix(r, self, a, false);
}

static struct value endswith(struct run *r, struct value self, const struct arguments *a)
{
    return with_affix(r, self, a, true);
}

/* The index in code points, -1 where it is not there. */
static int64_t find_any(struct run *r, struct value self, const struct arguments *a,
                        const char *name, bool last)
{
    struct value v[3];
    const struct text *whole = self.text, *t = whole;
    arguments_bind(r, name, a, NAMES("sub", "start", "end"), 3, 1, v);
    const struct text *part = argument_text(r, v[0], "the substring");
    run_work(r, t->len / 64);
    if (!bounded(r, &t, &v[1]))
        return -1;
    size_t at = last ? text_find_last(t, part, t->len) : text_find(t, part, 0);
    if (at == SIZE_MAX)
        return -1;
    size_t offset = (size_t)(t->data - whole->data) + at;
    return (int64_t)text_part(r, whole, 0, offset)->chars;
}

static struct value find(struct run *r, struct value self, const struct arguments *a)
{
    return value_int(find_any(r, self, a, "find", false));
}

static struct value rfind(struct run *r, struct value self, const struct arguments *a)
{
    return value_int(find_any(r, self, a, "rfind", true));
}

static struct value index_or_fail(struct run *r, int64_t index)
{
    if (index < 0)
        run_refuse(r, "substring not found");
    return value_int(index);
}

static struct value index_method(struct run *r, struct value self, const struct arguments *a)
{
    return index_or_fail(r, find_any(r, self, a, "index", false));
}

static struct value rindex_method(struct run *r, struct value self, const struct arguments *a)
{
    return index_or_fail(r, find_any(r, self, a, "rindex", true));
}

static struct value count(struct run *r, struct value self, const struct arguments *a)
{
    struct value v[3];
    const struct text *t = self.text;
    int64_t n = 0;
    arguments_bind(r, "count", a, NAMES("sub", "start", "end"), 3, 1, v);
    const struct text *part = argument_text(r, v[0], "the substring");
    run_work(r, t->len / 16);
    if (!bounded(r, &t, &v[1]))
        return value_int(0);
    if (part->len == 0)
        return value_int((int64_t)t->chars + 1);
    for (size_t at = 0; (at = text_find(t, part, at)) != SIZE_MAX; at += part->len)
        n++;
    return value_int(n);
}

const struct method_entry methods_text_tests[] = {
    {"startswith", startswith},
    {"endswith", endswith},
    {"find", find},
    {"rfind", rfind},
    {"index", index_method},
    {"rindex", rindex_method},
    {"count", count},
    {"isalpha", isalpha_method},
    {"isdigit", isdigit_method},
    {"isdecimal", isdigit_method},
    {"isnumeric", isdigit_method},
    {"isalnum", isalnum_method},
    {"isspace", isspace_method},
    {"isupper", isupper_method},
    {"islower", islower_method},
    {NULL, NULL},
};
