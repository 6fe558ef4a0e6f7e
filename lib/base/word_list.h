/* Lists of words that end with NULL. */
#ifndef MOED_BASE_WORD_LIST_H
#define MOED_BASE_WORD_LIST_H

#include <stdbool.h>
#include <string.h>

static inline bool word_list_has(const char *const *list, const char *word)
{
    for (; *list; list++)
        if (strcmp(*list, word) == 0)
            return true;
    return false;
}

#endif
