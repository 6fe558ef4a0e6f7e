/* Converts text to token ids and back, by a GGUF file's tokenizer keys.
 *
 * Models: `gpt2` (byte-level BPE with a pre-tokenizer), `llama` (SentencePiece-style BPE by score,
 * with byte fallback) and `gemma4` (BPE of characters by merges, with byte fallback). A tokenizer
 * never changes after creation: any number of threads may use it (each call has its own match
 * data).
 *
 * Any bytes x round-trip, decode(encode(x)) == x, if the vocabulary has the 256 bytes and encoding
 * adds no leading space.
 */
#ifndef MOED_TOKENIZER_TOKENIZER_H
#define MOED_TOKENIZER_TOKENIZER_H

#include "base/error.h"
#include "base/strbuf.h"
#include "gguf/gguf.h"
#include "tokenizer/fim.h"
#include "tokenizer/token_list.h"

#include <stdbool.h>
#include <stdint.h>

struct tokenizer;

/* pre overrides the file's tokenizer.ggml.pre; NULL: the file's. The tokenizer does not borrow g.
 * ERROR_UNSUPPORTED: an unknown model or pre-tokenizer; the error lists the known ones.
 * ERROR_FORMAT: missing or inconsistent keys. */
enum error_code tokenizer_new(const struct gguf *g, const char *pre, struct tokenizer **out,
                              struct error *e);
void tokenizer_free(struct tokenizer *t); /* takes NULL */

enum {
    TOKENIZE_ADD_SPECIAL = 1,   /* add begin and end tokens, if the file asks for them; no begin
                                   token in front of one that the text begins with */
    TOKENIZE_ADD_BEGIN = 4,     /* of these the begin token alone */
    TOKENIZE_PARSE_SPECIAL = 2, /* texts of control tokens become those tokens; without this flag
                                   only texts of user-defined tokens do */
};

/* Appends the ids of text[0..len) to *out. */
enum error_code tokenizer_encode(const struct tokenizer *t, const char *text, size_t len,
                                 unsigned flags, struct token_list *out, struct error *e);

/* Bytes [start, end) of a text in which the texts of control tokens are plain text, and those of
 * user-defined tokens that mark turns (<|...|>, and the ends of generation). Other user-defined
 * tokens, such as runs of spaces, are tokens there too. */
struct plain_range {
    size_t start, end;
};

/* The same, with ranges in order and without overlap: what a user wrote into a prompt that a
 * template made. The ranges do not cut the text: words go on across them. */
enum error_code tokenizer_encode_ranges(const struct tokenizer *t, const char *text, size_t len,
                                        unsigned flags, const struct plain_range *plain,
                                        size_t plain_count, struct token_list *out,
                                        struct error *e);

/* Appends the bytes of one token to *out. special: texts of control tokens too; else nothing for
 * them. Does not strip a `llama` model's leading space at the start of a text; tokenizer_decode
 * does. False: id is not in the vocabulary. */
bool tokenizer_piece(const struct tokenizer *t, uint32_t id, bool special, struct strbuf *out);

/* Appends the text of ids, without the leading space that encoding adds if the file asks for it.
 * ERROR_USAGE names an id that is not in the vocabulary. */
enum error_code tokenizer_decode(const struct tokenizer *t, const uint32_t *ids, size_t count,
                                 bool special, struct strbuf *out, struct error *e);

uint32_t tokenizer_vocab_size(const struct tokenizer *t);
/* True: generation ends at this token. The file's keys name such tokens, and vocab.c knows others
 * by their text: <|im_end|>, <|endoftext|>, </s>, ... */
bool tokenizer_is_end(const struct tokenizer *t, uint32_t id);
bool tokenizer_is_special(const struct tokenizer *t, uint32_t id); /* control or unknown */
/* -1: the file has none. */
int64_t tokenizer_bos(const struct tokenizer *t);
int64_t tokenizer_eos(const struct tokenizer *t);
int64_t tokenizer_fim(const struct tokenizer *t, enum fim_role role);
const char *tokenizer_model(const struct tokenizer *t); /* "gpt2" */
const char *tokenizer_pre(const struct tokenizer *t);   /* "qwen2" */

#endif
