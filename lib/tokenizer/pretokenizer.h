/* Cutting text into pieces before byte-level BPE: a named row of regular expressions, applied one
 * after the other, each to the pieces that the one before left. What an expression matches is a
 * piece, and so is what lies between two matches.
 *
 * Text need not be UTF-8. The expressions see each longest run of well-formed UTF-8 as a text of
 * its own; a run of other bytes is a piece by itself. So any bytes are covered, in order, exactly
 * once.
 */
#ifndef MOED_TOKENIZER_PRETOKENIZER_H
#define MOED_TOKENIZER_PRETOKENIZER_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>

#define PRETOKENIZER_STAGES 6

struct pretokenizer_kind {
    const char *name;
    bool ignore_merges; /* a whole piece that is a token is taken without merging */
    bool adds_bos;      /* begins with the begin token where the file does not say */
    const char *patterns[PRETOKENIZER_STAGES];
};

/* NULL for an unknown name. */
const struct pretokenizer_kind *pretokenizer_kind_find(const char *name, size_t len);
/* All names, separated by ", ". */
void pretokenizer_kind_names(char *out, size_t size);

struct pretokenizer {
    void *stages[PRETOKENIZER_STAGES]; /* pcre2_code */
    unsigned stage_count;
};

enum error_code pretokenizer_init(struct pretokenizer *p, const struct pretokenizer_kind *kind,
                                  struct error *e);
void pretokenizer_fini(struct pretokenizer *p);

/* Called with each piece, in order; false stops (out of memory). */
typedef bool pretokenizer_emit(void *context, const char *piece, size_t len);

enum error_code pretokenizer_split(const struct pretokenizer *p, const char *text, size_t len,
                                   pretokenizer_emit *emit, void *context, struct error *e);

#endif
