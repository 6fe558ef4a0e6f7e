/* Checks a request's header fields before anything else reads them: framing that two programs could
 * understand differently is refused, so that no proxy and moed-http disagree on where a request
 * ends. RFC 9112, sections 3.2 (Host), 5.1 (no space before the colon), 5.2 (no folded lines), 6.1
 * to 6.3 (length).
 *
 * libmicrohttpd before 0.9.77 takes a folded line for a part of the field's name, and ends a text
 * at a NUL. It leaves the texts where they were read, so both show in where they stand:
 * framing_line and framing_at have that checked. */
#ifndef MOED_HTTP_FRAMING_H
#define MOED_HTTP_FRAMING_H

#include <stdbool.h>
#include <stdint.h>

struct framing {
    const char *fault; /* NULL: none so far */
    bool has_length, chunked;
    unsigned hosts;
    const char *end; /* of the text before the next field; NULL: places do not matter */
    uint64_t length; /* Content-Length, where has_length */
};

/* Method, target and version must stand right behind each other in memory. target_end: behind the
 * target as it was sent, before anything was decoded in place. */
void framing_line(struct framing *f, const char *method, const char *target, const char *target_end,
                  const char *version);
/* The fields and the end of the head must stand right behind each other in memory, from `end` on.
 */
void framing_at(struct framing *f, const char *end);
/* Takes one field. Zeroed is the start. */
void framing_field(struct framing *f, const char *name, const char *value);
/* After the last field. version: "HTTP/1.1". head_end: behind the empty line; only with framing_at.
 * Returns what is wrong, or NULL. */
const char *framing_end(struct framing *f, const char *version, const char *head_end);

#endif
