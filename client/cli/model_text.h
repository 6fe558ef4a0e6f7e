/* The tokenizer of a model file, for verbs that compute with a text of any length. They tokenise in
 * this process: a worker's reply is limited to one message. */
#ifndef MOED_CLI_MODEL_TEXT_H
#define MOED_CLI_MODEL_TEXT_H

#include "base/strbuf.h"
#include "gguf/gguf.h"
#include "tokenizer/tokenizer.h"

#include <stdbool.h>

struct model_text {
    struct tokenizer *tokenizer;
    bool has_begin_token; /* texts of the model begin with a begin token */
    uint32_t begin_token;
    uint32_t context_trained; /* 0: not in the file */
};

/* Both functions complain. */
bool model_text_open(struct model_text *m, const struct gguf *g);
/* Appends a file's bytes; "-": standard input. */
bool model_text_read(const char *path, struct strbuf *text);
void model_text_close(struct model_text *m); /* takes a zeroed struct */

/* The default context of those verbs: the trained context, at most this many tokens. */
#define MODEL_TEXT_CONTEXT 512u
uint64_t model_text_context(const struct model_text *m);

#endif
