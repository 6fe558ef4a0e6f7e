/* Events; see stream.h. */
#include "client/http/api/stream.h"

#include <string.h>

void event_begin(struct strbuf *out, const char *name)
{
    if (name)
        strbuf_printf(out, "event: %s\n", name);
    strbuf_printf(out, "data: ");
}

void event_end(struct strbuf *out)
{
    strbuf_append(out, "\n\n", 2);
}

void event_comment(struct strbuf *out)
{
    strbuf_append(out, ":\n\n", 3);
}

void json_member(struct strbuf *out, const char *name, const char *text, size_t len)
{
    char last = out->len ? out->data[out->len - 1] : '{';
    strbuf_printf(out, "%s\"%s\":", last == '{' || last == '[' ? "" : ",", name);
    strbuf_json_string(out, text, len);
}

void json_string_member(struct strbuf *out, const char *name, const char *text)
{
    json_member(out, name, text, strlen(text));
}
