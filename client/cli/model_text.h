/* A text and the model file whose tokens it is cut into: for verbs that compute with a text of any length. It is tokenised
 * here, from the file's vocabulary: a worker's answer to a question is limited to one message. */
#ifndef MOED_CLI_MODEL_TEXT_H
#define MOED_CLI_MODEL_TEXT_H

#include "base/strbuf.h"
#include "gguf/gguf.h"
#include "tokenizer/tokenizer.h"

#include <stdbool.h>

struct model_text {
    struct tokenizer *tokenizer;
    bool has_begin_token; /* the model's texts begin with one */
    uint32_t begin_token;
    uint32_t context_trained; /* 0: the file does not say */
};

/* Both complain. */
bool model_text_open(struct model_text *m, const struct gguf *g);
/* A file's bytes, appended; "-" is standard input. */
bool model_text_read(const char *path, struct strbuf *text);
void model_text_close(struct model_text *m); /* takes one of zeros */

/* Tokens of a piece of text where nobody says how many: the trained context, but not more than this. */
#define MODEL_TEXT_CONTEXT 512u
uint64_t model_text_context(const struct model_text *m);

#endif
