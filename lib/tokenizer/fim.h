/* The tokens of a vocabulary that mark the parts of a prompt for fill-in-the-middle (FIM): a text
 * before and one behind the cursor, and the place where the model begins to write between them.
 * Models for code have them. Bavarian et al., "Efficient Training of Language Models to Fill in the
 * Middle" (2022), has the method; the report of Qwen2.5-Coder has the form with several files. */
#ifndef MOED_TOKENIZER_FIM_H
#define MOED_TOKENIZER_FIM_H

#include "base/error.h"

#include <stdbool.h>

struct gguf;
struct vocab;

enum fim_role {
    FIM_PREFIX,
    FIM_SUFFIX,
    FIM_MIDDLE,
    FIM_PAD,        /* ends generation, as the two below */
    FIM_REPOSITORY, /* stands before the name of a repository */
    FIM_FILE,       /* stands before the name of a file */
    FIM_ROLES,
};

/* Sets v->fim of a loaded vocabulary: by the file's keys, else by the texts that published
 * vocabularies have for each role. Marks those that end generation. */
enum error_code fim_find(struct vocab *v, const struct gguf *g, struct error *e);
/* The file has the tokens of prefix, suffix and middle, as fim_find finds them, but without loading
 * the vocabulary. False, too: its keys are wrong. */
bool fim_is_in(const struct gguf *g);

#endif
