/* The command line's options for structured output (docs/structured-output.md). */
#ifndef MOED_CLI_GRAMMAR_OPTIONS_H
#define MOED_CLI_GRAMMAR_OPTIONS_H

#include "base/strbuf.h"
#include "client/include/moed.h"

#include <stdbool.h>
#include <stddef.h>

struct grammar_options {
    const char *json_schema, *grammar_file, *regex; /* NULL: not given */
    bool json_object;
    const char *const *choices; /* [choice_count] */
    size_t choice_count;
    /* what grammar_options_make makes */
    struct strbuf text;
    struct moed_grammar grammar;
};

/* Makes o->grammar, of kind MOED_GRAMMAR_NONE where no option was given. False: it has complained.
 */
bool grammar_options_make(struct grammar_options *o);
void grammar_options_fini(struct grammar_options *o);

#endif
