/* Schemas that are to be followed as far as they can be (lib/grammar/schema_loosen.h), and what
 * became of the last ones: clients send the same schema with each request. One thread. */
#ifndef MOED_HTTP_API_LOOSE_SCHEMAS_H
#define MOED_HTTP_API_LOOSE_SCHEMAS_H

#include "client/http/api/ask.h"

#include "grammar/subschema.h"

enum { LOOSE_SCHEMAS = 16, LOOSE_SCHEMA_BYTES = 64 << 10 }; /* kept; of a larger one none is */

struct loose_schema {
    uint64_t hash;
    char *text, *loose;                 /* owned; NULL: no entry */
    char keyword[SCHEMA_KEYWORD_BYTES]; /* one that was left out; empty: none */
};

/* Zeroed at first. */
struct loose_schemas {
    struct loose_schema items[LOOSE_SCHEMAS];
    unsigned next; /* which one is replaced */
};

/* Loosens ask->form_text, and notes a keyword that it leaves out. Without memory for that the text
 * stays as it is, and the worker says what it does not follow. */
void loose_schemas_apply(struct loose_schemas *all, struct ask *ask);
void loose_schemas_fini(struct loose_schemas *all);

#endif
