/* The vocabulary of a GGUF file: tokens as the bytes that they stand for, their types, the special
 * ids.
 *
 * Decisions on what a file may hold:
 *  - Tokens are turned into raw bytes once, here: byte-level text of `gpt2`, U+2581 for space in
 *    `llama`, <0xXX> for byte tokens. A `gpt2` token with characters outside the byte-level
 * alphabet stands for its own text and is never produced by encoding.
 *  - Encoding finds normal tokens, and user-defined ones; control, unknown, unused and byte tokens
 * only come from their own rules. Of equal tokens the normal ones, then the lowest id, is found.
 * Empty tokens are allowed and never produced.
 *  - Counts of tokens, scores and types must agree; every id in a key must be below the count; no
 * token may have more than VOCAB_TOKEN_BYTES, no special one more than VOCAB_SPECIAL_BYTES bytes.
 */
#ifndef MOED_TOKENIZER_VOCAB_H
#define MOED_TOKENIZER_VOCAB_H

#include "gguf/gguf.h"
#include "tokenizer/symbols.h"

#include <stdbool.h>
#include <stdint.h>

#define VOCAB_TOKENS_MAX    (1u << 24)
#define VOCAB_TOKEN_BYTES   65536u
#define VOCAB_SPECIAL_BYTES 1024u

enum token_type {
    TOKEN_UNDEFINED = 0, /* treated as unused */
    TOKEN_NORMAL,
    TOKEN_UNKNOWN,
    TOKEN_CONTROL,
    TOKEN_USER_DEFINED,
    TOKEN_UNUSED,
    TOKEN_BYTE,
    TOKEN_TYPE_COUNT,
};

enum vocab_model { VOCAB_GPT2, VOCAB_LLAMA };

struct token_info {
    float score; /* llama: higher merges first */
    uint8_t type;
    bool ends;         /* generation ends at it */
    bool strips_right; /* white space after it in a text is dropped */
};

struct vocab {
    enum vocab_model model;
    uint32_t count;
    struct token_info *tokens;
    struct symbol_table symbols; /* the first count are the tokens */
    uint32_t longest;            /* bytes of the longest token that encoding can find */
    uint32_t byte_tokens[256];   /* SYMBOL_NONE where there is none */
    uint32_t unknown;            /* SYMBOL_NONE where the file has none */
    int64_t bos, eos;            /* -1 where the file has none */
    bool add_bos, add_eos;
    bool add_space; /* llama: a space goes in front of a text */
};

/* bos_default: what add_bos_token is where the file does not say. */
enum error_code vocab_init(struct vocab *v, const struct gguf *g, enum vocab_model model,
                           bool bos_default, struct error *e);
void vocab_fini(struct vocab *v);

static inline bool token_is_special(const struct token_info *t)
{
    return t->type == TOKEN_CONTROL || t->type == TOKEN_UNKNOWN;
}

/* The array KEY of the file; ERROR_FORMAT naming key and file where it is absent or of another
 * type. */
enum error_code vocab_array(const struct gguf *g, const char *key, enum gguf_value_type element,
                            const struct gguf_kv **out, struct error *e);

#endif
