/* Half of a surrogate pair, as a model writes "\ud83d": valid JSON, but no text. A client that
 * reads it has a string that it cannot send back. */
#ifndef MOED_TOOLCALL_SURROGATES_H
#define MOED_TOOLCALL_SURROGATES_H

#include "base/strbuf.h"

#include <stddef.h>
#include <stdint.h>

/* An escape that is not decided yet. All zero before a value of JSON. */
struct surrogates {
    char held[12];
    uint8_t n;
};

/* Appends the next part of a value of JSON; escapes of half a pair become that of U+FFFD. What may
 * begin such an escape waits for the next part: nothing does behind the end of a string. */
void surrogates_append(struct surrogates *s, struct strbuf *out, const char *text, size_t len);
/* No escape follows that is the other half. */
void surrogates_end(struct surrogates *s, struct strbuf *out);

#endif
