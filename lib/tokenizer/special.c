/* Finds special tokens; see special.h. */
#include "tokenizer/special.h"

#include <stdlib.h>
#include <string.h>

static int compare_texts(const void *a, const void *b, void *context)
{
    const struct symbol_table *symbols = context;
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    uint32_t x_len = symbols->symbols[x].length, y_len = symbols->symbols[y].length;
    int order =
        memcmp(symbol_bytes(symbols, x), symbol_bytes(symbols, y), x_len < y_len ? x_len : y_len);
    if (order)
        return order;
    if (x_len != y_len)
        return x_len < y_len ? -1 : 1;
    return x < y ? -1 : x > y;
}

void special_set_init(struct special_set *s, uint32_t *ids, uint32_t count,
                      const struct symbol_table *symbols)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (symbols->symbols[ids[i]].length > 0)
            ids[kept++] = ids[i];
    }
    *s = (struct special_set){.ids = ids, .count = kept};
    if (kept)
        qsort_r(ids, kept, sizeof *ids, compare_texts, (void *)symbols);
    for (unsigned byte = 0, i = 0; byte < 256; byte++) {
        while (i < kept && symbol_bytes(symbols, ids[i])[0] <= byte)
            i++;
        s->first[byte + 1] = i;
    }
}

void special_set_fini(struct special_set *s)
{
    free(s->ids);
    *s = (struct special_set){0};
}

/* The first of ids[low..high) whose byte at depth is at least `byte`. The texts are longer than
 * depth and equal up to it. */
static uint32_t lower_bound(const struct special_set *s, const struct symbol_table *symbols,
                            uint32_t low, uint32_t high, size_t depth, unsigned byte)
{
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (symbol_bytes(symbols, s->ids[middle])[depth] < byte)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The longest special token at the start of text; SYMBOL_NONE: none. */
static uint32_t longest_at(const struct special_set *s, const struct symbol_table *symbols,
                           const uint8_t *text, size_t len)
{
    uint32_t best = SYMBOL_NONE;
    uint32_t low = s->first[text[0]], high = s->first[text[0] + 1];
    for (size_t depth = 1; low < high; depth++) {
        if (symbols->symbols[s->ids[low]].length == depth)
            best = s->ids[low]; /* shorter texts stand first, equal ones by id */
        while (low < high && symbols->symbols[s->ids[low]].length == depth)
            low++;
        if (depth == len)
            break;
        low = lower_bound(s, symbols, low, high, depth, text[depth]);
        high = lower_bound(s, symbols, low, high, depth, text[depth] + 1u);
    }
    return best;
}

bool special_find(const struct special_set *s, const struct symbol_table *symbols, const char *text,
                  size_t len, size_t from, struct special_match *out)
{
    if (s->count == 0)
        return false;
    const uint8_t *bytes = (const uint8_t *)text;
    for (size_t i = from; i < len; i++) {
        if (s->first[bytes[i]] == s->first[bytes[i] + 1])
            continue;
        uint32_t id = longest_at(s, symbols, bytes + i, len - i);
        if (id != SYMBOL_NONE) {
            *out = (struct special_match){i, symbols->symbols[id].length, id};
            return true;
        }
    }
    return false;
}
