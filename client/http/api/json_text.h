/* JSON texts whose numbers stay what they are. */
#ifndef MOED_HTTP_JSON_TEXT_H
#define MOED_HTTP_JSON_TEXT_H

#include "base/strbuf.h"

#include <stdbool.h>
#include <stddef.h>

/* Appends a text that is one JSON object, without blanks and newlines; half a surrogate pair and
 * bytes that are not UTF-8 become U+FFFD. False: it is none, and nothing is appended. */
bool json_text_compact(const char *text, size_t len, struct strbuf *out);

#endif
