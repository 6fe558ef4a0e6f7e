/* What tokens activated before; see token_table.h. */
#include "sched/predict/token_table.h"

#include <stdlib.h>
#include <string.h>

struct key {
    uint64_t used; /* the table's clock at the last visit; 0: the row is free */
    uint32_t id;
};

/* A line is what a row has of a layer: the experts (16 bits), their counts (0: no expert), the
 * visits. */
struct line {
    uint16_t *experts;
    uint8_t *counts, *visits;
};

struct token_table {
    struct token_table_shape shape;
    uint32_t n_sets, n_listed; /* n_listed: experts of a line, at most */
    size_t line_bytes;
    uint64_t clock;   /* visits */
    struct key *keys; /* [n_sets][TOKEN_TABLE_WAYS] */
    uint8_t *lines;   /* [rows][n_layers] */
};

static size_t line_bytes(const struct token_table_shape *s)
{
    size_t bytes = (size_t)s->n_used * TOKEN_TABLE_LIST * (sizeof(uint16_t) + 1) + 1;
    return bytes + bytes % sizeof(uint16_t);
}

size_t token_table_bytes_per_token(const struct token_table_shape *s)
{
    return sizeof(struct key) + s->n_layers * line_bytes(s);
}

/* calloc leaves pages alone that no token has touched yet. */
struct token_table *token_table_new(const struct token_table_shape *shape)
{
    size_t sets = ((size_t)shape->n_tokens + TOKEN_TABLE_WAYS - 1) / TOKEN_TABLE_WAYS;
    size_t rows = (sets ? sets : 1) * TOKEN_TABLE_WAYS;
    struct token_table *t = calloc(1, sizeof *t);
    if (!t)
        return NULL;
    *t = (struct token_table){.shape = *shape,
                              .n_sets = (uint32_t)(rows / TOKEN_TABLE_WAYS),
                              .n_listed = shape->n_used * TOKEN_TABLE_LIST,
                              .line_bytes = line_bytes(shape)};
    t->keys = calloc(rows, sizeof *t->keys);
    t->lines = calloc(rows, shape->n_layers * t->line_bytes);
    if (t->keys && t->lines)
        return t;
    token_table_free(t);
    return NULL;
}

void token_table_free(struct token_table *t)
{
    if (!t)
        return;
    free(t->keys);
    free(t->lines);
    free(t);
}

static struct line line_at(const struct token_table *t, size_t row, uint32_t layer)
{
    uint8_t *at = t->lines + (row * t->shape.n_layers + layer) * t->line_bytes;
    uint8_t *counts = at + t->n_listed * sizeof(uint16_t);
    return (struct line){(uint16_t *)(void *)at, counts, counts + t->n_listed};
}

/* The first row of the token's set. Neighbouring ids go to distant sets (Knuth, volume 3, 6.4). */
static size_t set_of(const struct token_table *t, uint32_t id)
{
    uint32_t hash = id * 2654435769u;
    return (size_t)(((uint64_t)hash * t->n_sets) >> 32) * TOKEN_TABLE_WAYS;
}

/* SIZE_MAX: none. */
static size_t row_of(const struct token_table *t, uint32_t id)
{
    size_t first = set_of(t, id);
    for (size_t row = first; row < first + TOKEN_TABLE_WAYS; row++)
        if (t->keys[row].used && t->keys[row].id == id)
            return row;
    return SIZE_MAX;
}

/* The token's row, or an empty one in place of its set's oldest. */
static size_t take_row(struct token_table *t, uint32_t id)
{
    size_t row = row_of(t, id), first = set_of(t, id);
    if (row != SIZE_MAX)
        return row;
    row = first;
    for (size_t i = first + 1; i < first + TOKEN_TABLE_WAYS; i++)
        if (t->keys[i].used < t->keys[row].used)
            row = i;
    t->keys[row].id = id;
    size_t bytes = t->shape.n_layers * t->line_bytes;
    memset(t->lines + row * bytes, 0, bytes);
    return row;
}

bool token_table_find(const struct token_table *t, uint32_t id, uint32_t layer,
                      struct token_visits *out)
{
    size_t row = row_of(t, id);
    if (row == SIZE_MAX)
        return false;
    struct line line = line_at(t, row, layer);
    uint32_t n = t->shape.n_used; /* of the last visit */
    while (n < t->n_listed && line.counts[n])
        n++;
    *out = (struct token_visits){*line.visits, n, line.experts, line.counts};
    return *line.visits;
}

/* Halves visits and counts; drops experts whose count becomes 0. */
static void halve(struct line line, uint32_t n_listed)
{
    uint32_t kept = 0;
    *line.visits /= 2;
    for (uint32_t i = 0; i < n_listed; i++) {
        uint8_t count = line.counts[i] / 2;
        line.counts[i] = 0;
        line.counts[kept] = count;
        line.experts[kept] = line.experts[i];
        kept += count > 0;
    }
}

/* Moves an expert to the front, with one visit more. If it is not listed, the last one makes place.
 */
static void count_expert(struct line line, uint32_t n_listed, uint16_t expert)
{
    uint32_t i = 0;
    while (i < n_listed - 1 && line.counts[i] && line.experts[i] != expert)
        i++;
    bool known = line.counts[i] && line.experts[i] == expert;
    uint8_t count = (uint8_t)(known ? line.counts[i] + 1 : 1);
    memmove(line.counts + 1, line.counts, i * sizeof *line.counts);
    memmove(line.experts + 1, line.experts, i * sizeof *line.experts);
    line.counts[0] = count;
    line.experts[0] = expert;
}

void token_table_visit(struct token_table *t, uint32_t id, uint32_t layer, const uint32_t *selected)
{
    size_t row = take_row(t, id);
    struct line line = line_at(t, row, layer);
    t->keys[row].used = ++t->clock;
    if (*line.visits == TOKEN_TABLE_VISITS - 1)
        halve(line, t->n_listed);
    ++*line.visits;
    for (uint32_t i = t->shape.n_used; i-- > 0;) /* the first choice comes first */
        count_expert(line, t->n_listed, (uint16_t)selected[i]);
}
