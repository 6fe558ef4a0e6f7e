/* The page for browsers: the files of client/http/page, compiled in. They need no API key; what the
 * page asks for then does. */
#ifndef MOED_HTTP_PAGE_H
#define MOED_HTTP_PAGE_H

#include "client/http/server/exchange.h"

#include <stddef.h>

struct page_file {
    const char *name;
    const unsigned char *bytes;
    size_t length;
    const char *digest; /* SHA-256 in hexadecimal digits: the entity tag */
};

extern const struct page_file page_files[]; /* ends with a NULL name; sorted by name */

/* GET /: the page where the client accepts text/html, else Ollama's greeting. */
void handle_root(struct exchange *x);
/* GET /page/NAME */
void handle_page_file(struct exchange *x);

/* True if an If-None-Match field names the tag `"digest"`. field: NULL if there is none. */
bool page_tag_matches(const char *field, const char *digest);

#endif
