/* Merges equivalent states (Moore's algorithm): states are split into classes by what they accept,
 * then by the classes that their bytes lead to, until no class is split. */
#include "grammar/dfa.h"

#include "base/arrays.h"

#include <stdlib.h>
#include <string.h>

enum { BYTES = 256 };
static const uint64_t WORK_MAX = 50000000; /* a larger automaton stays as it is */

struct classes {
    const struct dfa *d;
    uint32_t *of, *finer;  /* [n_states]: the class, now and after the round */
    uint32_t *first;       /* [n_states]: of each class of `finer` the state that began it */
    uint32_t *table, mask; /* by hash: class of `finer` + 1; 0: empty */
    uint32_t count, n_finer;
};

static uint32_t class_behind(const struct classes *c, uint32_t s, unsigned byte)
{
    uint32_t next = c->d->next[s][byte];
    return next == DFA_NONE ? DFA_NONE : c->of[next];
}

static uint32_t hash_state(const struct classes *c, uint32_t s)
{
    uint32_t hash = c->of[s];
    for (unsigned byte = 0; byte < BYTES; byte++)
        hash = (hash ^ class_behind(c, s, byte)) * 0x9e3779b1u;
    return hash ^ hash >> 15;
}

static bool same_class(const struct classes *c, uint32_t a, uint32_t b)
{
    unsigned byte = 0;
    while (byte < BYTES && class_behind(c, a, byte) == class_behind(c, b, byte))
        byte++;
    return c->of[a] == c->of[b] && byte == BYTES;
}

static uint32_t find_class(struct classes *c, uint32_t s)
{
    uint32_t at = hash_state(c, s) & c->mask;
    for (; c->table[at]; at = (at + 1) & c->mask)
        if (same_class(c, c->first[c->table[at] - 1], s))
            return c->table[at] - 1;
    c->first[c->n_finer] = s;
    c->table[at] = ++c->n_finer;
    return c->n_finer - 1;
}

/* False: no class was split. */
static bool split(struct classes *c)
{
    uint32_t before = c->count, *of = c->of;
    memset(c->table, 0, (c->mask + (size_t)1) * sizeof *c->table);
    c->n_finer = 0;
    for (uint32_t s = 0; s < c->d->n_states; s++)
        c->finer[s] = find_class(c, s);
    c->of = c->finer;
    c->finer = of;
    c->count = c->n_finer;
    return c->count > before;
}

/* State 0 begins class 0, and each class is numbered not above the state that began it. */
static void merge(struct dfa *d, const struct classes *c)
{
    for (uint32_t k = 0; k < c->count; k++) {
        uint32_t s = c->first[k];
        for (unsigned byte = 0; byte < BYTES; byte++)
            d->next[k][byte] = class_behind(c, s, byte);
        d->accepts[k] = d->accepts[s];
    }
    d->n_states = c->count;
}

enum error_code dfa_minimise(struct dfa *d, struct error *e)
{
    struct classes c = {.d = d, .count = 1};
    uint32_t size = 64;
    uint64_t work = 0;
    bool again = d->n_states > 1;
    while (size < d->n_states * (uint64_t)2)
        size *= 2;
    c.mask = size - 1;
    void *memory = ARRAYS_NEW(ARRAY(c.of, d->n_states), ARRAY(c.finer, d->n_states),
                              ARRAY(c.first, d->n_states), ARRAY(c.table, size));
    if (!memory)
        return error_set(e, ERROR_MEMORY, "out of memory for a grammar");
    for (uint32_t s = 0; s < d->n_states; s++)
        c.of[s] = d->accepts[s];
    while (again && work < WORK_MAX) {
        work += d->n_states * (uint64_t)BYTES;
        again = split(&c);
    }
    if (d->n_states > 1 && !again)
        merge(d, &c);
    d->work += work;
    free(memory);
    return ERROR_OK;
}
