/* Events of a stream, as text: server-sent events (HTML standard, section 9.2) and lines of JSON.
 *
 *     event_begin(out, "message_stop");   event: message_stop
 *     strbuf_printf(out, "{...}");        data: {...}
 *     event_end(out);                     (an empty line) */
#ifndef MOED_HTTP_STREAM_H
#define MOED_HTTP_STREAM_H

#include "base/strbuf.h"

#include <stddef.h>

#define EVENT_STREAM "text/event-stream"

/* name: of the event; NULL: none. The data must not contain a newline. */
void event_begin(struct strbuf *out, const char *name);
void event_end(struct strbuf *out);
/* A comment, which clients drop. */
void event_comment(struct strbuf *out);

/* "NAME": "text", with a comma in front where the buffer does not end with a bracket. */
void json_member(struct strbuf *out, const char *name, const char *text, size_t len);
/* The same of a text that ends with its NUL. */
void json_string_member(struct strbuf *out, const char *name, const char *text);

#endif
