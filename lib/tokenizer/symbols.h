/* Byte strings with ids: the tokens of a vocabulary, and the strings that merges name without being
 * tokens. Ids count from 0 in the order of adding. Only indexed strings are found by their bytes.
 * Not thread-safe while strings are added, read-only afterwards.
 */
#ifndef MOED_TOKENIZER_SYMBOLS_H
#define MOED_TOKENIZER_SYMBOLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SYMBOL_NONE UINT32_MAX

struct symbol {
    uint32_t offset, length; /* in bytes[] */
};

struct symbol_slot {
    uint32_t tag; /* high half of the hash */
    uint32_t id;  /* SYMBOL_NONE: free */
};

struct symbol_table {
    uint8_t *bytes; /* all strings, one after the other */
    size_t bytes_used, bytes_capacity;
    struct symbol *symbols;
    uint32_t count, capacity;
    struct symbol_slot *slots; /* open addressing, a power of two, at most half full */
    uint32_t slot_mask, slots_used;
    uint64_t seed; /* random: a file cannot choose strings that collide */
};

/* Room for about expected strings and their bytes; both grow. False when out of memory. */
bool symbol_table_init(struct symbol_table *t, uint32_t expected, size_t expected_bytes);
void symbol_table_fini(struct symbol_table *t);

/* Add a string without indexing it. data may not lie in the table. False when out of memory or when
 * all strings together would pass 4 GiB. */
bool symbol_table_add(struct symbol_table *t, const void *data, size_t len, uint32_t *id);
/* Make id findable, unless an equal string already is. */
bool symbol_table_index(struct symbol_table *t, uint32_t id);
/* SYMBOL_NONE where no indexed string equals data. */
uint32_t symbol_table_find(const struct symbol_table *t, const void *data, size_t len);
/* Find, else add and index. */
bool symbol_table_intern(struct symbol_table *t, const void *data, size_t len, uint32_t *id);

static inline const uint8_t *symbol_bytes(const struct symbol_table *t, uint32_t id)
{
    return t->bytes + t->symbols[id].offset;
}

/* A random number for hashing; never fails. */
uint64_t symbol_seed(void);

/* Spread a 64-bit key over the whole word. */
static inline uint64_t symbol_mix(uint64_t x)
{
    x ^= x >> 32;
    x *= 0x9e3779b97f4a7c15u;
    x ^= x >> 29;
    x *= 0xd6e8feb86659fd93u;
    return x ^ x >> 32;
}

#endif
