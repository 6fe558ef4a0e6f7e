/* A growing list of token ids; see token_list.h. */
#include "tokenizer/token_list.h"

#include <stdlib.h>

void token_list_fini(struct token_list *l)
{
    free(l->ids);
    *l = (struct token_list){0};
}

bool token_list_push(struct token_list *l, uint32_t id)
{
    if (l->count == l->capacity) {
        size_t capacity = l->capacity ? l->capacity * 2 : 64;
        uint32_t *ids = realloc(l->ids, capacity * sizeof *ids);
        if (!ids)
            return false;
        l->ids = ids;
        l->capacity = capacity;
    }
    l->ids[l->count++] = id;
    return true;
}
