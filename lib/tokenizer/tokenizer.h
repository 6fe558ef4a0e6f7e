/* Text to token ids and back, from a GGUF file's tokenizer keys.
 *
 * Models: `gpt2` (byte-level BPE with a pre-tokenizer) and `llama` (SentencePiece-style BPE by
 * score, byte fallback). Immutable after creation: any number of threads may use one at once (regex
 * match data is per call). Any bytes round-trip: tokenizer_decode(tokenizer_encode(x)) == x
 * wherever the vocabulary has the 256 bytes and no leading space is added.
 */
#ifndef MOED_TOKENIZER_TOKENIZER_H
#define MOED_TOKENIZER_TOKENIZER_H

#include "base/error.h"
#include "base/strbuf.h"
#include "gguf/gguf.h"

#include <stdbool.h>
#include <stdint.h>

struct tokenizer;

/* pre overrides the file's tokenizer.ggml.pre; NULL takes the file's. Copies what it needs: g may
 * be closed afterwards. An unknown model or pre-tokenizer is ERROR_UNSUPPORTED, naming it and those
 * known; missing or inconsistent keys are ERROR_FORMAT. */
enum error_code tokenizer_new(const struct gguf *g, const char *pre, struct tokenizer **out,
                              struct error *e);
void tokenizer_free(struct tokenizer *t); /* takes NULL */

/* Owned by the caller: zero it first, token_list_fini at the end. */
struct token_list {
    uint32_t *ids;
    size_t count, capacity;
};
void token_list_fini(struct token_list *l);
/* False when out of memory. */
bool token_list_push(struct token_list *l, uint32_t id);

enum {
    TOKENIZE_ADD_SPECIAL = 1,   /* begin (and end) token where the file asks for one */
    TOKENIZE_PARSE_SPECIAL = 2, /* control tokens' texts in the input become those tokens; without
                                   it only user-defined ones do */
};

/* Append the ids of text[0..len) to *out. */
enum error_code tokenizer_encode(const struct tokenizer *t, const char *text, size_t len,
                                 unsigned flags, struct token_list *out, struct error *e);

/* Append the bytes of one token to *out. special: the texts of control tokens too (else nothing for
 * them). A `llama` model's leading space at the start of a text is the caller's to strip:
 * tokenizer_decode does. False when id is not in the vocabulary. */
bool tokenizer_piece(const struct tokenizer *t, uint32_t id, bool special, struct strbuf *out);

/* Append the text of ids. The space that encoding put in front (if the file asks for it) is taken
 * off. ERROR_USAGE names an id that is not in the vocabulary. */
enum error_code tokenizer_decode(const struct tokenizer *t, const uint32_t *ids, size_t count,
                                 bool special, struct strbuf *out, struct error *e);

uint32_t tokenizer_vocab_size(const struct tokenizer *t);
/* True when generation ends at this token (the end-of-generation set is found by id keys and by
 * text, see architectures: <|im_end|>, <|endoftext|>, </s>, ...). */
bool tokenizer_is_end(const struct tokenizer *t, uint32_t id);
bool tokenizer_is_special(const struct tokenizer *t, uint32_t id); /* control or unknown */
/* -1 when the file has none. */
int64_t tokenizer_bos(const struct tokenizer *t);
int64_t tokenizer_eos(const struct tokenizer *t);
const char *tokenizer_model(const struct tokenizer *t); /* "gpt2" */
const char *tokenizer_pre(const struct tokenizer *t);   /* "qwen2" */

#endif
