/* Cuts text into pieces before byte-level BPE. A pre-tokenizer is a named list of regular
 * expressions. Each applies to the pieces of the previous one: its matches become pieces, and so do
 * the texts between them.
 *
 * Text need not be UTF-8. The expressions see each longest run of well-formed UTF-8 as a text; a
 * run of other bytes is one piece. The pieces cover all bytes, in order, exactly once. */
#ifndef MOED_TOKENIZER_PRETOKENIZER_H
#define MOED_TOKENIZER_PRETOKENIZER_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>

#define PRETOKENIZER_STAGES 6

struct pretokenizer_kind {
    const char *name;
    bool ignore_merges; /* takes a piece that is a token without merging */
    bool adds_bos;      /* adds the begin token, unless the file says otherwise */
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

/* Called with each piece, in order. False: out of memory; stop. */
typedef bool pretokenizer_emit(void *context, const char *piece, size_t len);

enum error_code pretokenizer_split(const struct pretokenizer *p, const char *text, size_t len,
                                   pretokenizer_emit *emit, void *context, struct error *e);

#endif
