/* A byte-level BPE vocabulary of any size: the 256 bytes, merges that build common English words
 * and then made-up words, and three special tokens. The same size gives the same vocabulary. */
#ifndef MOED_MKMODEL_VOCABULARY_H
#define MOED_MKMODEL_VOCABULARY_H

#include "base/error.h"
#include "gguf/gguf.h"

#include <stdint.h>

struct vocabulary {
    uint32_t count;             /* of bytes, merged tokens, special tokens, in this order */
    uint32_t merge_count;       /* count - 256 - 3 */
    struct gguf_string *tokens; /* [count], all distinct */
    int32_t *token_types;       /* [count]: 1 normal, 3 control */
    struct gguf_string *merges; /* [merge_count]: "left right", both tokens before the result */
    uint32_t end_of_text, im_start, im_end;
    char *text;   /* the merges' text */
    void *work;   /* of the construction; holds the tokens' text */
    void *memory; /* of the three arrays */
};

/* count at least 259. */
enum error_code vocabulary_init(struct vocabulary *v, uint32_t count, struct error *e);
void vocabulary_fini(struct vocabulary *v);

#endif
