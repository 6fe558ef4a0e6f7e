/* Byte strings with ids: the tokens of a vocabulary, and strings of merges that are no tokens. Ids
 * count from 0 in the order of adding. symbol_table_find finds only indexed strings. While a thread
 * adds strings, no other may use the table; afterwards any number may read it. */
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
    uint64_t seed; /* random, so that no file can choose strings that collide */
};

/* expected, expected_bytes: the likely number of strings and their bytes; both grow. False: out of
 * memory. */
bool symbol_table_init(struct symbol_table *t, uint32_t expected, size_t expected_bytes);
void symbol_table_fini(struct symbol_table *t);

/* Adds a string without indexing it. data must not lie in the table. False: out of memory, or all
 * strings together would exceed 4 GiB. */
bool symbol_table_add(struct symbol_table *t, const void *data, size_t len, uint32_t *id);
/* Indexes id, unless an equal string is indexed. */
bool symbol_table_index(struct symbol_table *t, uint32_t id);
/* SYMBOL_NONE: no indexed string equals data. */
uint32_t symbol_table_find(const struct symbol_table *t, const void *data, size_t len);
/* Finds a string, or adds and indexes it. */
bool symbol_table_intern(struct symbol_table *t, const void *data, size_t len, uint32_t *id);

static inline const uint8_t *symbol_bytes(const struct symbol_table *t, uint32_t id)
{
    return t->bytes + t->symbols[id].offset;
}

/* A random number for hashing; never fails. */
uint64_t symbol_seed(void);

/* Spreads a 64-bit key over the whole word. */
static inline uint64_t symbol_mix(uint64_t x)
{
    x ^= x >> 32;
    x *= 0x9e3779b97f4a7c15u;
    x ^= x >> 29;
    x *= 0xd6e8feb86659fd93u;
    return x ^ x >> 32;
}

#endif
