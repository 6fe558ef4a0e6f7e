/* A growing list of token ids. The caller owns it: zero it first, call token_list_fini at the end.
 */
#ifndef MOED_TOKENIZER_TOKEN_LIST_H
#define MOED_TOKENIZER_TOKEN_LIST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct token_list {
    uint32_t *ids;
    size_t count, capacity;
};

void token_list_fini(struct token_list *l);
bool token_list_push(struct token_list *l, uint32_t id); /* false: out of memory */

#endif
