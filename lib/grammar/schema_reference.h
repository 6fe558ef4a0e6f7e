/* References within a schema ($ref) and JSON pointers. */
#ifndef MOED_GRAMMAR_SCHEMA_REFERENCE_H
#define MOED_GRAMMAR_SCHEMA_REFERENCE_H

#include "base/strbuf.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

/* What "#", "#/pointer" or "#anchor" names in a document; borrowed. NULL: nothing, another
 * document, or no memory. *looks grows by the nodes that were looked at. */
json_t *schema_reference(json_t *document, const char *ref, uint64_t *looks);

/* Appends "/token", escaped. */
void schema_pointer_token(struct strbuf *b, const char *token);
/* Appends the JSON pointer of `json` in a document. False: it is not there, and *b is as before. */
bool schema_pointer(json_t *document, const json_t *json, struct strbuf *b);

#endif
