/* Finds special tokens; see special.h. */
#include "tokenizer/special.h"

#include "base/arrays.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- The automaton ---- */

/* The byte at `depth` of a text that is read backwards. */
static uint8_t byte_at(const struct symbol_table *symbols, uint32_t id, uint32_t depth)
{
    return symbol_bytes(symbols, id)[symbols->symbols[id].length - 1 - depth];
}

/* By reversed text, then id. */
static int compare_reversed(const void *a, const void *b, void *context)
{
    const struct symbol_table *symbols = context;
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    uint32_t x_len = symbols->symbols[x].length, y_len = symbols->symbols[y].length;
    for (uint32_t i = 0; i < x_len && i < y_len; i++) {
        int order = byte_at(symbols, x, i) - byte_at(symbols, y, i);
        if (order)
            return order;
    }
    if (x_len != y_len)
        return x_len < y_len ? -1 : 1;
    return x < y ? -1 : x > y;
}

/* 0: there is no such child. */
static uint32_t find_child(const struct special_set *s, uint32_t node, uint8_t byte)
{
    if (node == 0)
        return s->root[byte];
    uint32_t low = s->child[node], end = s->child[node + 1], high = end;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (s->byte[middle] < byte)
            low = middle + 1;
        else
            high = middle;
    }
    return low < end && s->byte[low] == byte ? low : 0;
}

static uint32_t move(const struct special_set *s, uint32_t node, uint8_t byte, uint64_t *n_moves)
{
    uint32_t to;
    for (++*n_moves; !(to = find_child(s, node, byte)) && node; ++*n_moves)
        node = s->next[node];
    return to;
}

/* The ids whose reversed texts begin with a node's. */
struct node_range {
    uint32_t first, end, depth;
};

/* Appends the children of `node`, whose ids are in `range`, to the nodes and to ranges. */
static void add_children(struct special_set *s, uint32_t node, struct node_range *ranges,
                         const uint32_t *ids, const struct symbol_table *symbols)
{
    const struct node_range range = ranges[node];
    uint64_t n_moves = 0;
    uint32_t i = range.first;
    s->token[node] = SYMBOL_NONE;
    for (; i < range.end && symbols->symbols[ids[i]].length == range.depth; i++)
        if (s->token[node] == SYMBOL_NONE)
            s->token[node] = ids[i];
    if (s->token[node] == SYMBOL_NONE && node)
        s->token[node] = s->token[s->next[node]];
    s->child[node] = s->n_nodes;
    while (i < range.end) {
        uint32_t child = s->n_nodes++;
        uint8_t byte = byte_at(symbols, ids[i], range.depth);
        ranges[child] = (struct node_range){i, i, range.depth + 1};
        while (i < range.end && byte_at(symbols, ids[i], range.depth) == byte)
            i++;
        ranges[child].end = i;
        s->byte[child] = byte;
        s->next[child] = node ? move(s, s->next[node], byte, &n_moves) : 0;
        if (node == 0)
            s->root[byte] = child;
    }
}

bool special_set_init(struct special_set *s, uint32_t *ids, uint32_t count,
                      const struct symbol_table *symbols)
{
    uint64_t bytes = 0;
    uint32_t n = 0;
    *s = (struct special_set){.n_nodes = 1};
    for (uint32_t i = 0; i < count; i++) {
        uint32_t len = symbols->symbols[ids[i]].length;
        bytes += len;
        s->longest = len > s->longest ? len : s->longest;
        if (len)
            ids[n++] = ids[i];
    }
    errno = E2BIG;
    if (bytes > SPECIAL_BYTES_MAX)
        return false;
    errno = ENOMEM;
    size_t most = (size_t)bytes + 1;
    struct node_range *ranges = malloc(most * sizeof *ranges);
    s->memory = ARRAYS_NEW(ARRAY(s->child, most + 1), ARRAY(s->next, most), ARRAY(s->token, most),
                           ARRAY(s->byte, most));
    if (!ranges || !s->memory) {
        free(ranges);
        special_set_fini(s);
        return false;
    }
    if (n)
        qsort_r(ids, n, sizeof *ids, compare_reversed, (void *)symbols);
    ranges[0] = (struct node_range){0, n, 0};
    for (uint32_t node = 0; node < s->n_nodes; node++)
        add_children(s, node, ranges, ids, symbols);
    s->child[s->n_nodes] = s->n_nodes;
    free(ranges);
    return true;
}

void special_set_fini(struct special_set *s)
{
    free(s->memory);
    *s = (struct special_set){0};
}

/* ---- The search ---- */

void special_scan_init(struct special_scan *scan, const struct special_set *s,
                       const struct symbol_table *symbols, const char *text, size_t len)
{
    scan->set = s;
    scan->symbols = symbols;
    scan->text = (const uint8_t *)text;
    scan->len = len;
    scan->begin = scan->end = 0;
    scan->n_moves = 0;
}

/* A token that begins in the block ends at most `longest` bytes after it, so the automaton starts
 * there. */
static void scan_block(struct special_scan *scan, size_t begin)
{
    const struct special_set *s = scan->set;
    size_t left = scan->len - begin, end = left < SPECIAL_BLOCK_BYTES ? left : SPECIAL_BLOCK_BYTES;
    size_t from = left < end + s->longest ? left : end + s->longest;
    uint32_t node = 0;
    scan->begin = begin;
    scan->end = begin + end;
    for (size_t i = from; i-- > 0;) {
        node = move(s, node, scan->text[begin + i], &scan->n_moves);
        if (i < end)
            scan->token[i] = s->token[node];
    }
}

bool special_scan_find(struct special_scan *scan, size_t from, struct special_match *out)
{
    if (scan->set->n_nodes <= 1)
        return false;
    for (size_t i = from; i < scan->len; i++) {
        if (i >= scan->end)
            scan_block(scan, i);
        uint32_t id = scan->token[i - scan->begin];
        if (id != SYMBOL_NONE) {
            *out = (struct special_match){i, scan->symbols->symbols[id].length, id};
            return true;
        }
    }
    return false;
}
