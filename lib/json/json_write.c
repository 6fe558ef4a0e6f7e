/* JSON as text; see json_write.h. */
#include "json/json_write.h"

#include "base/quantity.h"

#include <string.h>

static void write_real(double real, struct strbuf *out)
{
    char text[32];
    quantity_format_number(real, text);
    strbuf_printf(out, "%s%s", text, strpbrk(text, ".e") ? "" : ".0"); /* no integer */
}

static void write_array(const json_t *array, enum json_blanks blanks, struct strbuf *out)
{
    strbuf_append(out, "[", 1);
    for (size_t i = 0; i < json_array_size(array); i++) {
        strbuf_append(out, ", ", !i ? 0 : blanks ? 2 : 1);
        json_write(json_array_get(array, i), blanks, out);
    }
    strbuf_append(out, "]", 1);
}

static void write_object(const json_t *object, enum json_blanks blanks, struct strbuf *out)
{
    const char *separator = "{", *key;
    json_t *value;
    json_object_foreach((json_t *)object, key, value)
    {
        strbuf_printf(out, "%s", separator);
        strbuf_json_string(out, key, strlen(key));
        strbuf_append(out, ": ", blanks ? 2 : 1);
        json_write(value, blanks, out);
        separator = blanks ? ", " : ",";
    }
    strbuf_printf(out, json_object_size(object) ? "}" : "{}");
}

void json_write(const json_t *value, enum json_blanks blanks, struct strbuf *out)
{
    switch (value ? json_typeof(value) : JSON_NULL) {
    case JSON_OBJECT:
        write_object(value, blanks, out);
        break;
    case JSON_ARRAY:
        write_array(value, blanks, out);
        break;
    case JSON_STRING:
        strbuf_json_string(out, json_string_value(value), json_string_length(value));
        break;
    case JSON_INTEGER:
        strbuf_printf(out, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
        break;
    case JSON_REAL:
        write_real(json_real_value(value), out);
        break;
    default:
        strbuf_printf(out, "%s",
                      json_is_true(value)    ? "true"
                      : json_is_false(value) ? "false"
                                             : "null");
    }
}

json_t *json_string_of(const struct strbuf *text)
{
    return text->failed ? NULL : json_stringn(text->len ? text->data : "", text->len);
}
