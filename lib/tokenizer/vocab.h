/* The vocabulary of a GGUF file: tokens as the bytes that they stand for, their types, the special
 * ids.
 *
 * Rules:
 *  - This module converts tokens to raw bytes: byte-level text of `gpt2`, U+2581 for a space in
 *    `llama` and `gemma4`, <0xXX> for byte tokens. A `gpt2` token with characters outside the
 * byte-level alphabet stands for its own text; encoding never produces it.
 *  - Encoding finds normal and user-defined tokens. Control, unknown, unused and byte tokens come
 *    only from their own rules. Among equal tokens encoding finds a normal one before a
 * user-defined one, then the lowest id. Empty tokens are allowed; encoding never produces them.
 *  - The counts of tokens, scores and types must agree. Every id in a key must be below the count.
 * A token has at most VOCAB_TOKEN_BYTES bytes, a special token at most VOCAB_SPECIAL_BYTES. */
#ifndef MOED_TOKENIZER_VOCAB_H
#define MOED_TOKENIZER_VOCAB_H

#include "gguf/gguf.h"
#include "tokenizer/fim.h"
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

enum vocab_model { VOCAB_GPT2, VOCAB_LLAMA, VOCAB_GEMMA4 };

struct token_info {
    float score; /* llama: higher merges first */
    uint8_t type;
    bool ends;         /* generation ends at it */
    bool strips_right; /* encoding drops white space after it */
};

struct vocab {
    enum vocab_model model;
    uint32_t count;
    struct token_info *tokens;
    struct symbol_table symbols; /* the first `count` symbols are the tokens */
    uint32_t longest;            /* bytes of the longest token that encoding can find */
    uint32_t byte_tokens[256];   /* SYMBOL_NONE: the byte has none */
    uint32_t unknown;            /* SYMBOL_NONE: the file has none */
    int64_t bos, eos;            /* -1: the file has none */
    int64_t fim[FIM_ROLES];      /* the same, once fim_find has run */
    bool add_bos, add_eos;
    bool add_space; /* llama: encoding adds a leading space to a text */
};

/* bos_default: add_bos_token, if the file lacks the key. */
enum error_code vocab_init(struct vocab *v, const struct gguf *g, enum vocab_model model,
                           bool bos_default, struct error *e);
void vocab_fini(struct vocab *v);

static inline bool token_is_special(const struct token_info *t)
{
    return t->type == TOKEN_CONTROL || t->type == TOKEN_UNKNOWN;
}

/* Replaces U+2581, SentencePiece's space, by a space. out has space for len bytes. Returns the
 * length. */
size_t vocab_unescape_spaces(const char *text, size_t len, uint8_t *out);

/* The array `key` of the file. ERROR_FORMAT with key and file: absent or of another type. */
enum error_code vocab_array(const struct gguf *g, const char *key, enum gguf_value_type element,
                            const struct gguf_kv **out, struct error *e);

/* An array with one element for each of `count` tokens. *out NULL: the key is absent. */
enum error_code vocab_token_array(const struct gguf *g, const char *key,
                                  enum gguf_value_type element, uint64_t count,
                                  const struct gguf_kv **out, struct error *e);
/* A token's type by the file's array of types; NULL: it has none. The file may have any number. */
int32_t vocab_type_in(const struct gguf_kv *types, uint64_t id);

/* The id of one of `count` tokens that `key` names; -1: the file has no such key, or an id beyond
 * the vocabulary, which a line of the log tells. ERROR_FORMAT: the key has another type, or the end
 * of text is beyond the vocabulary. */
enum error_code vocab_id(const struct gguf *g, const char *key, uint64_t count, int64_t *out,
                         struct error *e);

struct gguf_string vocab_text(const struct vocab *v, uint32_t id);
/* A normal token may have the text of a mark by accident: </s> ends struck-out text in HTML. A text
 * with bars is no accident. */
bool vocab_may_be_mark(int32_t type, struct gguf_string text);

#endif
