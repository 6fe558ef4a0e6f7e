/* Grammars of arguments.
 *
 * Arguments stand in any order, because models do not keep to the schema's. JSON: the schema, as an
 * %unordered item. Gemma: the same as %gemma. Between tags: each property has an item of its own,
 * in a group %all, and one that repeats stands for the properties that the schema does not name. A
 * bare value must be one that the parser reads as the schema has it (argument_types.h): a text that
 * looks like JSON of another allowed type is not written as a string.
 *
 * Each item of a tool that is not strict names a rule that stands for a schema which cannot be
 * followed: of a value between tags only this value is free then. */
#include "toolcall/argument_grammar.h"

#include "base/utf8.h"
#include "toolcall/argument_types.h"
#include "toolcall/gbnf_write.h"
#include "toolcall/schema_part.h"
#include "toolcall/schema_strip.h"

#include <stdlib.h>
#include <string.h>

enum {
    PLACE_BYTES = 200,     /* what gbnf_schema.h takes, with space for escapes */
    KEYS_BYTES_MAX = 2000, /* of properties, in the expression of the other keys */
    KEY_BYTES = 100,       /* in an error */
    PARTS_MAX = 64,        /* that cannot repeat, of %all: NETWORK_SET of grammar/network.h */
    NOTES_MAX = 8,         /* of which the grammar keeps the texts */
    NOTE_BYTES = 200,
};

#define KEY_WORD "^[a-zA-Z0-9_.-]+$"
#define BLANKS   "[ \\t\\r\\n]*"
#define NUMBER   "-?[0-9]+(?:\\.[0-9]+)?(?:[eE](?:-|\\+)?[0-9]+)?"

static void literal(struct argument_writer *w, const char *text)
{
    gbnf_literal(w->out, text, strlen(text));
}

/* A literal also if it is empty. */
static void quoted(struct argument_writer *w, const char *text)
{
    if (*text)
        literal(w, text);
    else
        strbuf_printf(w->out, "\"\" ");
}

static enum error_code refuse(struct argument_writer *w, const struct tool *t, const char *keyword)
{
    return error_set(w->e, ERROR_UNSUPPORTED, "tool \"%s\": /%s: the %s format cannot follow it",
                     t->name, keyword, w->format->name);
}

/* ---- Items ---- */

/* What errors of a schema say before the JSON pointer in it. key: of a property, or NULL. */
static void place_text(struct strbuf *out, const struct tool *t, const char *key)
{
    strbuf_printf(out, "tool \"%s\": schema at \"#%s", t->name, key ? "/properties/" : "");
    for (const char *c = key; c && *c; c++) {
        const char *escaped = *c == '~' ? "~0" : *c == '/' ? "~1" : NULL;
        strbuf_append(out, escaped ? escaped : c, escaped ? 2 : 1);
    }
}

static void place(struct argument_writer *w, const struct tool *t, const char *key)
{
    struct strbuf b;
    strbuf_init(&b);
    place_text(&b, t, key);
    if (!b.failed && b.len < PLACE_BYTES)
        gbnf_literal(w->out, b.data, b.len);
    strbuf_fini(&b);
}

/* The item's schema, which is taken. */
static void schema_text(struct argument_writer *w, char *text)
{
    if (text) {
        strbuf_append(w->out, text, strlen(text));
        strbuf_append(w->out, " ", 1);
    } else {
        w->out->failed = true;
    }
    free(text);
}

/* The rule for a schema that cannot be followed. */
static void else_rule(struct argument_writer *w, const struct tool *t, const char *other)
{
    if (!t->strict)
        strbuf_printf(w->out, "%%else %s ", other);
}

/* Why a schema has no item: the first ones say it. */
static void note(struct argument_writer *w, const char *why)
{
    size_t n = strlen(why);
    strbuf_printf(w->out, "%%note ");
    if (w->notes++ >= NOTES_MAX)
        n = 0;
    if (n > NOTE_BYTES) /* whole characters */
        for (n = NOTE_BYTES; n > 0 && utf8_continues(why[n]);)
            n--;
    if (n > 0)
        gbnf_literal(w->out, why, n);
    else
        quoted(w, "");
}

static bool is_too_large(const struct argument_writer *w)
{
    return w->out->len > w->bytes_most;
}

static enum error_code refuse_size(struct argument_writer *w, const struct tool *t)
{
    return error_set(w->e, ERROR_LIMIT,
                     "tool \"%s\": the schemas of all tools have more than %d bytes", t->name,
                     (int)(t->strict ? TOOL_GRAMMAR_BYTES : TOOL_SCHEMAS_BYTES));
}

/* ---- JSON and Gemma ---- */

static void any_object(struct argument_writer *w)
{
    bool gemma = w->format->body == BODY_GEMMA;
    strbuf_printf(w->out, gemma ? "gemma-object " : "json-object ");
    *(gemma ? &w->gemma : &w->json) = true;
}

static void write_object(struct argument_writer *w, const struct tool *t)
{
    bool gemma = w->format->body == BODY_GEMMA;
    json_t *document = json_copy((json_t *)w->parameters);
    const char *type = json_string_value(json_object_get(document, "type"));
    if (document && (!type || !t->strict)) /* arguments are an object, not null */
        json_object_set_new(document, "type", json_string("object"));
    json_object_del(document, "nullable");
    strbuf_printf(w->out, gemma ? "%%gemma " : "%%unordered ");
    place(w, t, NULL);
    schema_text(w, json_dumps(document, JSON_COMPACT));
    else_rule(w, t, gemma ? "gemma-object" : "json-object");
    json_decref(document);
    if (!t->strict)
        *(gemma ? &w->gemma : &w->json) = true;
}

/* ---- Between tags ---- */

/* The marks are rules, so that a large set of tools has them once. */
static void key_begin(struct argument_writer *w)
{
    strbuf_printf(w->out, "key-begin ");
    w->tags = true;
}

static void key_end(struct argument_writer *w)
{
    strbuf_printf(w->out, "key-end ");
}

/* With the gap behind it. restricted: the newline before the mark is needed; without it one at the
 * end of the value would be no part of it, which a schema may want. The mark may be missing unless
 * the tool is strict: the parser then ends the value at the next line that begins with one. */
static void value_end(struct argument_writer *w, const struct tool *t, bool restricted)
{
    bool line = restricted && w->format->newline_values;
    if (t->strict)
        strbuf_printf(w->out, line ? "line-end " : "value-end ");
    else
        strbuf_printf(w->out, line ? "open-line " : "open-end ");
    w->open = w->open || !t->strict;
}

static void gap(struct argument_writer *w)
{
    literal(w, w->format->gap);
    strbuf_printf(w->out, w->format->optional_gap ? "? " : "");
}

static void tag_rules(struct argument_writer *w)
{
    const struct tool_format *f = w->format;
    strbuf_printf(w->out, "key-begin ::= ");
    literal(w, f->key_begin);
    strbuf_printf(w->out, "\nkey-end ::= ");
    literal(w, f->key_end);
    if (f->value_begin)
        gap(w);
    literal(w, f->value_begin ? f->value_begin : "");
    literal(w, f->newline_values ? "\n" : "");
    if (f->newline_values) {
        strbuf_printf(w->out, "\nline-end ::= ");
        literal(w, f->value_end);
        gap(w);
    }
    strbuf_printf(w->out, f->newline_values ? "\nvalue-end ::= \"\\n\"? " : "\nvalue-end ::= ");
    literal(w, f->value_end + f->newline_values);
    gap(w);
    strbuf_printf(w->out, "\n");
    if (w->open)
        strbuf_printf(w->out, "open-end ::= value-end | \"\\n\"\n");
    if (w->open && f->newline_values)
        strbuf_printf(w->out, "open-line ::= line-end | \"\\n\"\n");
}

/* The tag says whether the value is a string. */
static void typed(struct argument_writer *w, bool string)
{
    if (w->format->typed_values)
        literal(w, string ? "true\">" : "false\">");
}

#define ANY_TYPE "( \"true\\x22>\" | \"false\\x22>\" ) "

/* newline_values: an expression of what ends a value beside value_end: the mark at its beginning,
 * because a newline is before it, and at the end of the argument. */
static void other_ends(const struct argument_writer *w, struct strbuf *out)
{
    const char *mark = w->format->value_end + 1;
    strbuf_printf(out, "^%s|%s\n(?:%s|%s)", mark, mark, w->format->key_begin, w->format->call_end);
}

/* The rule of values that no mark ends. */
static void value_rule(struct argument_writer *w)
{
    struct strbuf ends;
    if (!w->format->newline_values) {
        gbnf_without(w->out, "value", w->format->value_end);
        return;
    }
    strbuf_init(&ends);
    other_ends(w, &ends);
    strbuf_printf(w->out, "value-0 ::= %%text ");
    literal(w, w->format->value_end);
    quoted(w, ends.data ? ends.data : "");
    strbuf_printf(w->out, "{\"type\":\"string\"}\n");
    w->out->failed = w->out->failed || ends.failed;
    strbuf_fini(&ends);
}

static void any_value(struct argument_writer *w)
{
    if (w->format->typed_values)
        strbuf_printf(w->out, ANY_TYPE);
    strbuf_printf(w->out, "value-0 ");
    w->value = true;
}

/* Would the text end the value? */
static bool has_value_end(const struct argument_writer *w, const char *text)
{
    const char *mark = w->format->value_end, *bare = mark + 1;
    size_t n = strlen(bare);
    bool ends = strstr(text, mark) || (w->format->newline_values && strncmp(text, bare, n) == 0);
    for (const char *at = text; w->format->newline_values && (at = strstr(at, bare)); at++)
        ends = ends || at[n] == '\n'; /* more than needed */
    return ends;
}

/* A constant list of strings that no mark interrupts, without other keywords. */
static bool is_list_of_strings(const struct argument_writer *w, const json_t *schema)
{
    const char *keyword;
    json_t *value, *list = json_object_get(schema, "enum");
    size_t i;
    json_object_foreach((json_t *)schema, keyword, value)
    {
        if (strcmp(keyword, "type") != 0 && strcmp(keyword, "enum") != 0 &&
            !schema_is_annotation(keyword))
            return false;
    }
    json_array_foreach(list, i, value)
    {
        if (!json_is_string(value) ||
            strlen(json_string_value(value)) != json_string_length(value) ||
            has_value_end(w, json_string_value(value)))
            return false;
    }
    return json_array_size(list) > 0;
}

/* True: one ends with a newline. */
static bool string_list(struct argument_writer *w, const json_t *list)
{
    size_t i;
    json_t *value;
    bool newline = false;
    strbuf_printf(w->out, "( ");
    json_array_foreach(list, i, value)
    {
        const char *text = json_string_value(value);
        strbuf_printf(w->out, i > 0 ? "| " : "");
        quoted(w, text);
        newline = newline || (*text && text[strlen(text) - 1] == '\n');
    }
    strbuf_printf(w->out, ") ");
    return newline;
}

/* Texts that the parser reads as JSON where these types are allowed, or as a Python literal, which
 * it does not where every type is (argument_write). */
static void texts_of_other_types(unsigned types, struct strbuf *out)
{
    static const struct {
        unsigned type;
        const char *json, *python;
    } forms[] = {
        {ARGUMENT_ARRAY, "\\[", "\\[|\\("},
        {ARGUMENT_OBJECT, "\\{", "\\{"},
        {ARGUMENT_BOOLEAN, "(?:true|false)" BLANKS "$", "(?:true|false|True|False)" BLANKS "$"},
        {ARGUMENT_NULL, "null" BLANKS "$", "(?:null|None)" BLANKS "$"},
        {ARGUMENT_NUMBER, NUMBER BLANKS "$", NUMBER BLANKS "$"}};
    const char *begin = "^" BLANKS "(?:";
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++)
        if (types & forms[i].type) {
            const char *text = types == ARGUMENT_ANY ? forms[i].json : forms[i].python;
            strbuf_printf(out, "%s%s", begin, text);
            begin = "|";
        }
    if (out->len)
        strbuf_append(out, ")", 1);
}

static void string_item(struct argument_writer *w, const struct tool *t, const char *key,
                        const json_t *schema, unsigned types)
{
    struct strbuf other;
    strbuf_init(&other);
    if (!w->format->typed_values)
        texts_of_other_types(types, &other);
    if (w->format->newline_values) {
        strbuf_printf(&other, other.len ? "|" : "");
        other_ends(w, &other);
    }
    strbuf_printf(w->out, "%%text ");
    literal(w, w->format->value_end);
    quoted(w, other.data ? other.data : "");
    place(w, t, key);
    schema_text(w, schema_part_text(w->parts, schema));
    w->out->failed = w->out->failed || other.failed;
    strbuf_fini(&other);
}

static void json_item(struct argument_writer *w, const struct tool *t, const char *key,
                      const json_t *schema)
{
    if (w->format->newline_values) { /* JSON has no newline, so it has not value_end */
        strbuf_printf(w->out, "%%unordered ");
    } else {
        strbuf_printf(w->out, "%%value ");
        literal(w, w->format->value_end);
    }
    place(w, t, key);
    schema_text(w, schema_part_text(w->parts, schema));
}

static void else_any_value(struct argument_writer *w, const struct tool *t)
{
    else_rule(w, t, "value-0");
    w->value = w->value || !t->strict;
}

/* A schema for strings and for others: bare strings or JSON. Where one of them cannot be followed,
 * the value is free as a whole. */
static void mixed_item(struct argument_writer *w, const struct tool *t, const char *key,
                       const json_t *schema, unsigned types)
{
    json_t *others = json_pack("{s:[O],s:[sssss]}", "allOf", schema, "type", "null", "boolean",
                               "number", "array", "object");
    strbuf_printf(w->out, t->strict ? "( " : "%%any ( ");
    typed(w, true);
    string_item(w, t, key, schema, types);
    strbuf_printf(w->out, "| ");
    typed(w, false);
    json_item(w, t, key, others);
    json_decref(others);
    strbuf_printf(w->out, ") ");
    else_rule(w, t, w->format->typed_values ? "typed-value" : "value-0");
    w->typed_value = w->typed_value || (!t->strict && w->format->typed_values);
    w->value = w->value || !t->strict;
}

/* Only a type, which the parser sees in a bare value as the schema does: but for `integer` beside
 * `string`, where it takes every number. */
static bool is_type_only(const json_t *schema)
{
    const char *keyword;
    json_t *value;
    size_t i;
    if (json_is_true(schema))
        return true;
    json_object_foreach((json_t *)schema, keyword, value)
    {
        if (strcmp(keyword, "type") != 0 && !schema_is_annotation(keyword))
            return false;
    }
    json_array_foreach(json_object_get(schema, "type"), i, value)
    {
        if (json_is_string(value) && strcmp(json_string_value(value), "integer") == 0)
            return false;
    }
    return true;
}

/* A value of which the item, a document of its own, would refer to other places. */
static enum error_code write_elsewhere(struct argument_writer *w, const struct tool *t,
                                       const char *key)
{
    struct strbuf where;
    struct error why;
    strbuf_init(&where);
    place_text(&where, t, key && strlen(key) < KEY_BYTES ? key : NULL);
    enum error_code code = error_set(&why, ERROR_UNSUPPORTED,
                                     "%s\": the %s format follows a $ref to a definition only",
                                     where.data ? where.data : "", w->format->name);
    strbuf_fini(&where);
    if (t->strict) {
        error_fill(w->e, code, "%s", why.text);
        return code;
    }
    note(w, why.text);
    any_value(w);
    value_end(w, t, false);
    return ERROR_OK;
}

/* The value, and its end. */
static enum error_code write_value(struct argument_writer *w, const struct tool *t, const char *key,
                                   const json_t *schema)
{
    if (schema_part_refers_elsewhere(w->parts, schema))
        return write_elsewhere(w, t, key);
    unsigned types = schema_types(w->parameters, schema);
    bool free_text = is_type_only(schema), restricted = false;
    if (types == ARGUMENT_STRING) {
        typed(w, true);
        if (free_text) {
            strbuf_printf(w->out, "value-0 ");
            w->value = true;
        } else if (is_list_of_strings(w, schema)) {
            restricted = string_list(w, json_object_get(schema, "enum"));
        } else {
            restricted = true;
            string_item(w, t, key, schema, types);
            else_any_value(w, t);
        }
    } else if (!(types & ARGUMENT_STRING)) {
        typed(w, false);
        json_item(w, t, key, schema);
        else_any_value(w, t);
    } else if (free_text && (types == ARGUMENT_ANY || !w->format->typed_values)) {
        any_value(w);
    } else {
        restricted = true;
        mixed_item(w, t, key, schema, types);
    }
    value_end(w, t, restricted);
    return ERROR_OK;
}

static bool is_key(const char *text)
{
    size_t n = strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-");
    return n > 0 && n == strlen(text);
}

/* A key that no property has. False: there are too many properties. */
static bool other_key(struct argument_writer *w, const json_t *properties)
{
    struct strbuf named;
    const char *key;
    json_t *schema;
    strbuf_init(&named);
    json_object_foreach((json_t *)properties, key, schema)
    {
        if (!is_key(key)) /* is not written as another key either */
            continue;
        strbuf_printf(&named, named.len ? "|" : "^(?:");
        for (const char *c = key; *c; c++)
            strbuf_append(&named, *c == '.' ? "[.]" : c, *c == '.' ? 3 : 1);
    }
    bool fits = !named.failed && named.len < KEYS_BYTES_MAX;
    if (named.len == 0) {
        strbuf_printf(w->out, "[a-zA-Z0-9_.-]+ ");
    } else if (fits) {
        strbuf_printf(&named, ")$");
        strbuf_printf(w->out, "%%text \"\" ");
        gbnf_literal(w->out, named.data, named.len);
        strbuf_printf(w->out, "{\"pattern\":\"" KEY_WORD "\"} ");
    }
    strbuf_fini(&named);
    return fits;
}

/* A keyword of the arguments that has no form between tags; NULL: there is none. */
static const char *keyword_without_form(const struct argument_writer *w, const struct tool *t)
{
    static const char *const known[] = {"type",  "properties",  "required", "additionalProperties",
                                        "$defs", "definitions", "$schema",  "$id"};
    json_t *value, *properties = json_object_get(w->parameters, "properties"),
                   *required = json_object_get(w->parameters, "required");
    const char *keyword;
    size_t i;
    json_object_foreach((json_t *)w->parameters, keyword, value)
    {
        bool found = schema_is_annotation(keyword);
        for (i = 0; i < sizeof known / sizeof known[0] && !found; i++)
            found = strcmp(known[i], keyword) == 0;
        if (!found)
            return keyword;
    }
    if (properties && !json_is_object(properties))
        return "properties";
    json_object_foreach(properties, keyword, value)
    {
        bool readable = *keyword && !strstr(keyword, w->format->key_end);
        if (!readable || !(json_is_object(value) || json_is_true(value)))
            return "properties";
    }
    if (required && !json_is_array(required) && (t->strict || !json_is_null(required)))
        return "required";
    json_array_foreach(required, i, value)
    {
        if (!json_is_string(value) || !json_object_get(properties, json_string_value(value)))
            return "required";
    }
    return NULL;
}

static void write_any_tags(struct argument_writer *w, const struct tool *t)
{
    strbuf_printf(w->out, "( ");
    key_begin(w);
    strbuf_printf(w->out, "[a-zA-Z0-9_.-]+ ");
    key_end(w);
    any_value(w);
    value_end(w, t, false);
    strbuf_printf(w->out, ")* ");
}

/* The names in `required`, as the keys of an object. */
static json_t *required_keys(const struct argument_writer *w)
{
    size_t i;
    json_t *name, *keys = json_object();
    json_array_foreach(json_object_get(w->parameters, "required"), i, name)
    {
        if (keys && json_object_set_new(keys, json_string_value(name), json_true())) {
            json_decref(keys);
            keys = NULL;
        }
    }
    return keys;
}

/* How the properties stand: as parts of %all or, where more are required than these can be, in the
 * schema's order. */
struct tag_parts {
    json_t *required; /* as keys */
    bool ordered;
    size_t n, optional_left; /* that cannot repeat */
};

/* times: "" once, "?" at most once, "*" any number of times. */
static void part_begin(struct argument_writer *w, struct tag_parts *p, const char *times)
{
    if (p->ordered)
        strbuf_printf(w->out, "( ");
    else
        strbuf_printf(w->out, "%s%s%s", p->n > 0 ? "| " : "", times, *times ? " " : "");
    p->n++;
    key_begin(w);
}

static void part_end(struct argument_writer *w, const struct tag_parts *p, const char *times)
{
    if (p->ordered)
        strbuf_printf(w->out, ")%s ", times);
}

static enum error_code named_properties(struct argument_writer *w, const struct tool *t,
                                        struct tag_parts *p)
{
    const char *key;
    json_t *schema;
    json_object_foreach(json_object_get(w->parameters, "properties"), key, schema)
    {
        const char *times = json_object_get(p->required, key)    ? ""
                            : p->ordered || p->optional_left > 0 ? "?"
                                                                 : "*";
        p->optional_left -= *times == '?' && p->optional_left > 0;
        part_begin(w, p, times);
        literal(w, key);
        key_end(w);
        enum error_code code = write_value(w, t, key, schema);
        if (code)
            return code;
        part_end(w, p, times);
        if (is_too_large(w))
            return refuse_size(w, t);
    }
    return ERROR_OK;
}

/* Properties that the schema does not name. */
static enum error_code other_properties(struct argument_writer *w, const struct tool *t,
                                        struct tag_parts *p)
{
    json_t *schema = json_object_get(w->parameters, "additionalProperties");
    if (json_is_false(schema))
        return ERROR_OK;
    part_begin(w, p, "*");
    if (!other_key(w, json_object_get(w->parameters, "properties")))
        return refuse(w, t, "properties");
    key_end(w);
    if (schema && !json_is_true(schema)) {
        enum error_code code = write_value(w, t, NULL, schema);
        if (code)
            return code;
    } else {
        any_value(w);
        value_end(w, t, false);
    }
    part_end(w, p, "*");
    return ERROR_OK;
}

static enum error_code write_tags(struct argument_writer *w, const struct tool *t)
{
    const char *keyword = keyword_without_form(w, t);
    if (keyword)
        return refuse(w, t, keyword);
    struct tag_parts p = {.required = required_keys(w)};
    size_t n = json_object_size(p.required);
    w->out->failed = w->out->failed || !p.required;
    p.ordered = n > PARTS_MAX;
    p.optional_left = p.ordered ? 0 : PARTS_MAX - n;
    bool none = json_object_size(json_object_get(w->parameters, "properties")) == 0 &&
                json_is_false(json_object_get(w->parameters, "additionalProperties"));
    strbuf_printf(w->out, p.ordered || none ? "" : "%%all ( ");
    enum error_code code = named_properties(w, t, &p);
    if (!code)
        code = other_properties(w, t, &p);
    strbuf_printf(w->out, p.ordered || none ? "" : ") ");
    json_decref(p.required);
    return code;
}

/* ---- A call ---- */

static void write_any(struct argument_writer *w, const struct tool *t)
{
    if (w->format->body == BODY_TAGS)
        write_any_tags(w, t);
    else
        any_object(w);
}

static enum error_code write_schema(struct argument_writer *w, const struct tool *t)
{
    enum error_code code = ERROR_OK;
    if (!(schema_types(w->parameters, w->parameters) & ARGUMENT_OBJECT))
        return error_set(w->e, ERROR_UNSUPPORTED,
                         "tool \"%s\": /type: the arguments of a call are an object", t->name);
    if (w->format->body == BODY_TAGS)
        code = write_tags(w, t);
    else
        write_object(w, t);
    if (!code && w->out->failed)
        return error_set(w->e, ERROR_MEMORY, "no memory for a grammar of calls");
    return !code && is_too_large(w) ? refuse_size(w, t) : code;
}

enum error_code arguments_write(struct argument_writer *w, const struct tool *t)
{
    struct argument_writer own = *w;
    struct strbuf text;
    struct error why;
    struct schema_parts parts;
    if (!t->parameters) {
        write_any(w, t);
        return ERROR_OK;
    }
    json_t *parameters = schema_strip(t->parameters);
    if (!parameters)
        return error_set(w->e, ERROR_MEMORY, "no memory for a grammar of calls");
    strbuf_init(&text);
    schema_parts_init(&parts, parameters);
    own.out = &text;
    own.e = &why;
    own.parameters = parameters;
    own.parts = &parts;
    own.bytes_most = w->bytes_left;
    if (t->strict) /* the text of the grammar so far may be beyond the limit already */
        own.bytes_most = TOOL_GRAMMAR_BYTES -
                         (w->out->len < TOOL_GRAMMAR_BYTES ? w->out->len : TOOL_GRAMMAR_BYTES);
    enum error_code code = write_schema(&own, t);
    schema_parts_fini(&parts);
    json_decref(parameters);
    if (!code) {
        strbuf_append(w->out, text.data, text.len);
        own.out = w->out;
        own.e = w->e;
        own.parameters = NULL;
        own.parts = NULL;
        own.bytes_left -= t->strict ? 0 : text.len;
        *w = own;
    } else if (!t->strict && code != ERROR_MEMORY) {
        note(w, why.text);
        write_any(w, t);
        code = ERROR_OK;
    } else {
        error_fill(w->e, code, "%s", why.text);
    }
    strbuf_fini(&text);
    return code;
}

void arguments_rules(struct argument_writer *w)
{
    if (w->tags)
        tag_rules(w);
    if (w->typed_value)
        strbuf_printf(w->out, "typed-value ::= " ANY_TYPE "value-0\n");
    if (w->value)
        value_rule(w);
    if (w->gemma)
        strbuf_printf(w->out, "gemma-object ::= %%gemma {\"type\":\"object\"}\n");
    if (w->json)
        gbnf_json(w->out);
}
