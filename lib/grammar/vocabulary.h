/* A vocabulary as a trie over the bytes of its tokens, so that one walk finds all tokens that a
 * grammar allows. Built once per model and never changed; matchers of all threads share it.
 *
 * Tokens without bytes (control, unknown and unused tokens) are not in the trie. End tokens are
 * known apart: a grammar allows them only where the answer is complete. */
#ifndef MOED_GRAMMAR_VOCABULARY_H
#define MOED_GRAMMAR_VOCABULARY_H

#include "base/error.h"
#include "tokenizer/tokenizer.h"

#include <stdbool.h>
#include <stdint.h>

/* A node in preorder: the nodes below it are those up to `skip`. */
struct grammar_trie_node {
    uint32_t skip;  /* the next node that is not below this one */
    uint32_t token; /* the first token that ends here; GRAMMAR_NO_TOKEN */
    uint32_t first; /* in `order`: of the tokens at this node and below */
    uint16_t depth; /* bytes from the root, this one included: at least 1 */
    uint16_t reach; /* bytes to the end of the longest token below */
    uint8_t byte;
    uint8_t bytes_below; /* kinds (enum grammar_byte_kind) of its byte and of those below, a set */
};

/* Bytes that the content of a JSON string treats alike, and most grammars too. */
enum grammar_byte_kind {
    GRAMMAR_BYTE_LETTER = 1,
    GRAMMAR_BYTE_DIGIT = 2,
    GRAMMAR_BYTE_BLANK = 4,
    GRAMMAR_BYTE_MARK = 8, /* other printable ones, without quote and backslash */
    GRAMMAR_BYTE_OTHER = 16,
};

enum grammar_byte_kind grammar_byte_kind(uint8_t byte);

#define GRAMMAR_NO_TOKEN    UINT32_MAX
#define GRAMMAR_TOKEN_BYTES 1024u /* longer tokens are left out: no answer needs them */

enum grammar_token_kind {
    GRAMMAR_TOKEN_TEXT,
    /* Never allowed, but where a grammar names it (grammar_compile_marked); else its bytes can only
     * complete a trigger. */
    GRAMMAR_TOKEN_CONTROL,
    GRAMMAR_TOKEN_END, /* allowed where the answer is complete */
};

struct grammar_token {
    uint32_t offset; /* of its bytes */
    uint16_t length;
    uint8_t kind;
    uint32_t same; /* the next token with the same bytes; GRAMMAR_NO_TOKEN */
};

struct grammar_vocabulary {
    uint32_t n_tokens, n_nodes;
    uint16_t longest;             /* bytes of the longest token in the trie */
    struct grammar_token *tokens; /* [n_tokens] */
    uint8_t *bytes;
    struct grammar_trie_node *nodes; /* [n_nodes + 1]; the last one only has `first` */
    uint32_t *order;                 /* the tokens of the trie in its order */
};

/* The bytes and kinds of n_tokens tokens; lengths above GRAMMAR_TOKEN_BYTES count as 0. Copies.
 * ERROR_MEMORY. */
enum error_code grammar_vocabulary_new(uint32_t n_tokens, const uint8_t *const *bytes,
                                       const uint32_t *lengths, const uint8_t *kinds,
                                       struct grammar_vocabulary **out, struct error *e);
enum error_code grammar_vocabulary_from_tokenizer(const struct tokenizer *t,
                                                  struct grammar_vocabulary **out, struct error *e);
void grammar_vocabulary_free(struct grammar_vocabulary *v); /* takes NULL */

#endif
