/* Byte strings with ids; see symbols.h. */
#include "tokenizer/symbols.h"

#include "base/clock.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

uint64_t symbol_seed(void)
{
    uint64_t seed;
    if (getrandom(&seed, sizeof seed, GRND_NONBLOCK) != sizeof seed)
        seed = clock_ns();
    return seed;
}

static uint64_t hash_bytes(const struct symbol_table *t, const uint8_t *p, size_t len)
{
    uint64_t h = t->seed ^ len;
    for (; len >= 8; p += 8, len -= 8) {
        uint64_t word;
        memcpy(&word, p, 8);
        h = symbol_mix(h ^ word);
    }
    uint64_t word = 0;
    if (len)
        memcpy(&word, p, len);
    return symbol_mix(h ^ word);
}

static bool grow_slots(struct symbol_table *t, uint32_t count)
{
    struct symbol_slot *slots = malloc((size_t)count * sizeof *slots);
    if (!slots)
        return false;
    memset(slots, 0xff, (size_t)count * sizeof *slots); /* every id SYMBOL_NONE */
    for (uint32_t i = 0; t->slots && i <= t->slot_mask; i++) {
        struct symbol_slot s = t->slots[i];
        if (s.id == SYMBOL_NONE)
            continue;
        uint64_t h = hash_bytes(t, symbol_bytes(t, s.id), t->symbols[s.id].length);
        uint32_t at = (uint32_t)h & (count - 1);
        while (slots[at].id != SYMBOL_NONE)
            at = (at + 1) & (count - 1);
        slots[at] = s;
    }
    free(t->slots);
    t->slots = slots;
    t->slot_mask = count - 1;
    return true;
}

bool symbol_table_init(struct symbol_table *t, uint32_t expected, size_t expected_bytes)
{
    *t = (struct symbol_table){.seed = symbol_seed()};
    t->capacity = expected + 256;
    t->bytes_capacity = expected_bytes + 256;
    t->symbols = malloc((size_t)t->capacity * sizeof *t->symbols);
    t->bytes = malloc(t->bytes_capacity);
    uint32_t slots = 1024;
    while (slots / 2 <= t->capacity && slots < UINT32_C(1) << 31)
        slots *= 2;
    if (!t->symbols || !t->bytes || !grow_slots(t, slots)) {
        symbol_table_fini(t);
        return false;
    }
    return true;
}

void symbol_table_fini(struct symbol_table *t)
{
    free(t->bytes);
    free(t->symbols);
    free(t->slots);
    *t = (struct symbol_table){0};
}

static bool reserve(struct symbol_table *t, size_t len)
{
    if (len > UINT32_MAX - t->bytes_used || t->count >= SYMBOL_NONE / 2)
        return false;
    if (t->count == t->capacity) {
        uint32_t capacity = t->capacity * 2;
        struct symbol *symbols = realloc(t->symbols, (size_t)capacity * sizeof *symbols);
        if (!symbols)
            return false;
        t->symbols = symbols;
        t->capacity = capacity;
    }
    if (len > t->bytes_capacity - t->bytes_used) {
        size_t capacity = t->bytes_capacity * 2 + len;
        uint8_t *bytes = realloc(t->bytes, capacity);
        if (!bytes)
            return false;
        t->bytes = bytes;
        t->bytes_capacity = capacity;
    }
    return true;
}

bool symbol_table_add(struct symbol_table *t, const void *data, size_t len, uint32_t *id)
{
    if (!reserve(t, len))
        return false;
    if (len)
        memcpy(t->bytes + t->bytes_used, data, len);
    t->symbols[t->count] = (struct symbol){(uint32_t)t->bytes_used, (uint32_t)len};
    t->bytes_used += len;
    *id = t->count++;
    return true;
}

/* The slot of data, or the free slot for it. */
static uint32_t find_slot(const struct symbol_table *t, uint64_t h, const void *data, size_t len)
{
    uint32_t tag = (uint32_t)(h >> 32);
    uint32_t at = (uint32_t)h & t->slot_mask;
    for (;; at = (at + 1) & t->slot_mask) {
        const struct symbol_slot *s = &t->slots[at];
        if (s->id == SYMBOL_NONE)
            return at;
        if (s->tag == tag && t->symbols[s->id].length == len &&
            (len == 0 || memcmp(symbol_bytes(t, s->id), data, len) == 0))
            return at;
    }
}

bool symbol_table_index(struct symbol_table *t, uint32_t id)
{
    if (t->slots_used > t->slot_mask / 2 && !grow_slots(t, (t->slot_mask + 1) * 2))
        return false;
    size_t len = t->symbols[id].length;
    uint64_t h = hash_bytes(t, symbol_bytes(t, id), len);
    struct symbol_slot *s = &t->slots[find_slot(t, h, symbol_bytes(t, id), len)];
    if (s->id == SYMBOL_NONE) {
        *s = (struct symbol_slot){.tag = (uint32_t)(h >> 32), .id = id};
        t->slots_used++;
    }
    return true;
}

uint32_t symbol_table_find(const struct symbol_table *t, const void *data, size_t len)
{
    return t->slots[find_slot(t, hash_bytes(t, data, len), data, len)].id;
}

bool symbol_table_intern(struct symbol_table *t, const void *data, size_t len, uint32_t *id)
{
    uint32_t found = symbol_table_find(t, data, len);
    if (found != SYMBOL_NONE) {
        *id = found;
        return true;
    }
    return symbol_table_add(t, data, len, id) && symbol_table_index(t, *id);
}
