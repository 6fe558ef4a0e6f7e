/* Checks a request's header fields before anything else reads them: framing that two programs could
 * understand differently is refused, so that no proxy and moed-http disagree on where a request
 * ends. RFC 9112, sections 3.2 (Host), 5.1 (no space before the colon), 6.1 to 6.3 (length). */
#ifndef MOED_HTTP_FRAMING_H
#define MOED_HTTP_FRAMING_H

#include <stdbool.h>
#include <stdint.h>

struct framing {
    const char *fault; /* NULL: none so far */
    bool has_length, chunked;
    unsigned hosts;
    uint64_t length; /* Content-Length, where has_length */
};

/* Takes one field. Zeroed is the start. */
void framing_field(struct framing *f, const char *name, const char *value);
/* After the last field. version: "HTTP/1.1". Returns what is wrong, or NULL. */
const char *framing_end(struct framing *f, const char *version);

#endif
