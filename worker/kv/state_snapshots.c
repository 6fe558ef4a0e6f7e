/* Snapshots of states; see state_snapshots.h. */
#include "worker/kv/state_snapshots.h"

#include "base/arrays.h"
#include "base/checked.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

struct entry {
    struct state_snapshot snapshot; /* first; position 0: none */
    uint32_t reserved;              /* the position that it will have; 0: it is not reserved */
    uint32_t n_prompt;
    uint64_t used;    /* a count; the lowest goes first */
    uint32_t *tokens; /* [position] of [context] */
};

struct state_snapshots {
    struct state_snapshots_options options;
    struct entry *entries; /* [count] */
    uint64_t clock;
    uint8_t *memory; /* states, then tokens; touched only as far as it is used */
    size_t memory_bytes;
};

static uint32_t least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* Whether a prompt of `a` tokens and one of b compute their first n positions in the same way. The
 * groups of a prompt come in order of their size (kv_kind_of), so their ends tell. */
static bool same_kinds(const struct state_snapshots *s, uint32_t n, uint32_t a, uint32_t b)
{
    static const uint32_t groups[] = {KV_LARGE_TOKENS, KV_SMALL_TOKENS};
    for (int i = 0; i < 2 && !s->options.exact; i++)
        if (least(n, a - a % groups[i]) != least(n, b - b % groups[i]))
            return false;
    return true;
}

static bool is_of(const struct state_snapshots *s, const struct entry *x, const uint32_t *tokens,
                  uint32_t n, uint32_t n_prompt)
{
    uint32_t position = x->snapshot.position;
    return position > 0 && position <= n && same_kinds(s, position, x->n_prompt, n_prompt) &&
           memcmp(x->tokens, tokens, position * sizeof *tokens) == 0;
}

const struct state_snapshot *state_snapshots_find(struct state_snapshots *s, const uint32_t *tokens,
                                                  uint32_t n, uint32_t n_prompt)
{
    struct entry *best = NULL;
    for (struct entry *x = s->entries; x < s->entries + s->options.count; x++)
        if (is_of(s, x, tokens, n, n_prompt) &&
            (!best || x->snapshot.position > best->snapshot.position))
            best = x;
    if (!best)
        return NULL;
    best->used = ++s->clock;
    return &best->snapshot;
}

struct state_snapshot *state_snapshots_reserve(struct state_snapshots *s, const uint32_t *tokens,
                                               uint32_t n, uint32_t n_prompt)
{
    struct entry *oldest = NULL;
    for (struct entry *x = s->entries; x < s->entries + s->options.count; x++) {
        if (x->snapshot.position == n && is_of(s, x, tokens, n, n_prompt)) {
            x->used = ++s->clock;
            return NULL;
        }
        if (!x->reserved && (!oldest || x->used < oldest->used))
            oldest = x;
    }
    if (!oldest || n == 0 || n > s->options.context)
        return NULL;
    oldest->snapshot.position = 0;
    oldest->reserved = n;
    oldest->n_prompt = n_prompt;
    memcpy(oldest->tokens, tokens, n * sizeof *tokens);
    return &oldest->snapshot;
}

void state_snapshots_keep(struct state_snapshots *s, struct state_snapshot *snapshot)
{
    struct entry *x = (struct entry *)snapshot;
    snapshot->position = x->reserved;
    x->reserved = 0;
    x->used = ++s->clock;
}

void state_snapshots_drop(struct state_snapshots *s, struct state_snapshot *snapshot)
{
    struct entry *x = (struct entry *)snapshot;
    (void)s;
    x->reserved = 0;
    x->used = 0;
}

void state_snapshots_clear(struct state_snapshots *s)
{
    for (struct entry *x = s->entries; x < s->entries + s->options.count; x++)
        if (!x->reserved) {
            x->snapshot.position = 0;
            x->used = 0;
        }
}

enum error_code state_snapshots_new(const struct state_snapshots_options *options,
                                    struct state_snapshots **out, struct error *e)
{
    struct state_snapshots *s;
    struct entry *entries;
    size_t state = round_up(options->state_bytes, 64);
    size_t tokens = round_up(options->context * sizeof(uint32_t), 64);
    if (!ARRAYS_NEW(ARRAY(s, 1), ARRAY(entries, options->count)))
        return error_set(e, ERROR_MEMORY, "no memory for the table of state snapshots");
    s->options = *options;
    s->entries = entries;
    s->memory_bytes = options->count * (state + tokens);
    void *memory = mmap(NULL, s->memory_bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
        free(s);
        return error_set(e, ERROR_MEMORY, "no memory for %" PRIu32 " snapshots of states: %m",
                         options->count);
    }
    s->memory = memory;
    for (uint32_t i = 0; i < options->count; i++) {
        entries[i].snapshot.state = s->memory + i * state;
        entries[i].tokens = (uint32_t *)(s->memory + options->count * state + i * tokens);
    }
    *out = s;
    return ERROR_OK;
}

void state_snapshots_free(struct state_snapshots *s)
{
    if (!s)
        return;
    munmap(s->memory, s->memory_bytes);
    free(s);
}
