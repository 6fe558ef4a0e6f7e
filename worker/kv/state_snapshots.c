/* Snapshots of states; see state_snapshots.h.
 *
 * `begins` has which kept snapshot is the beginning of which other one. A snapshot's loss costs the
 * tokens from the longest of its beginnings to it.
 *
 * Snapshots have up to the tokens of a context, and the engine waits for each look-up. So the
 * tokens of a prefix are compared once, with the longest snapshot; `begins` tells the rest. */
#include "worker/kv/state_snapshots.h"

#include "base/arrays.h"
#include "base/checked.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* A conversation goes on at its end far more often than at an earlier place, so the tokens before a
 * snapshot that none continues count so many times; before another one, once for each such end that
 * begins with it. See docs/design/conversations.md. */
#define END_WEIGHT 4

struct entry {
    struct state_snapshot snapshot; /* first; position 0: none */
    uint32_t reserved;              /* the position that it will have; 0: it is not reserved */
    uint32_t n_prompt;
    bool passing; /* only passing requests have used it */
    bool is_end;  /* find_victim's: no other snapshot begins with it */
    uint64_t salt;
    uint64_t age;     /* last_evicted when it was last used */
    uint64_t used;    /* a count; of equal values the lowest goes first */
    uint32_t *tokens; /* [position] of [context] */
};

struct state_snapshots {
    struct state_snapshots_options options;
    struct entry *entries; /* [count] */
    bool *begins;          /* [count][count]: the first one the second one; of kept snapshots */
    uint64_t clock;
    uint64_t last_evicted; /* value */
    uint8_t *memory;       /* states, then tokens; touched only as far as it is used */
    size_t memory_bytes;
};

/* Whether tokens [first, end) are the same. Conversations that differ do so to their end, so that
 * is compared first. */
static bool same_tokens(const uint32_t *a, const uint32_t *b, uint32_t first, uint32_t end)
{
    enum { TAIL = 16 };
    uint32_t tail = end - first > TAIL ? end - TAIL : first;
    return memcmp(a + tail, b + tail, (end - tail) * sizeof *a) == 0 &&
           memcmp(a + first, b + first, (tail - first) * sizeof *a) == 0;
}

/* Whether the prefix begins with x, of which the first n tokens are known to be the same. */
static bool is_of(const struct state_snapshots *s, const struct entry *x,
                  const struct kv_prefix *prefix, uint32_t n)
{
    uint32_t position = x->snapshot.position;
    return position > 0 && position <= prefix->n && x->salt == prefix->salt &&
           kv_same_kinds(position, x->n_prompt, prefix->n_prompt, s->options.exact) == position &&
           same_tokens(x->tokens, prefix->tokens, n, position);
}

static bool *begins(const struct state_snapshots *s, const struct entry *x, const struct entry *y)
{
    return &s->begins[(size_t)(x - s->entries) * s->options.count + (size_t)(y - s->entries)];
}

/* The longest kept snapshot that the prefix begins with; NULL: there is none. A shorter one is the
 * beginning of it. */
static struct entry *find_longest(const struct state_snapshots *s, const struct kv_prefix *prefix)
{
    struct entry *best = NULL;
    for (struct entry *x = s->entries; x < s->entries + s->options.count; x++) {
        uint32_t same = best ? best->snapshot.position : 0;
        if (x->snapshot.position > same && (!best || *begins(s, best, x)) &&
            is_of(s, x, prefix, same))
            best = x;
    }
    return best;
}

/* Whether the prefix, for which find_longest gives `longest`, begins with x. */
static bool has_beginning(const struct state_snapshots *s, const struct kv_prefix *prefix,
                          const struct entry *longest, const struct entry *x)
{
    if (!longest || x->snapshot.position == 0)
        return false;
    if (x != longest && x->snapshot.position == longest->snapshot.position) /* reserved at once */
        return is_of(s, x, prefix, 0);
    return x == longest || *begins(s, x, longest);
}

static void use(struct state_snapshots *s, struct entry *x, bool passing)
{
    x->passing &= passing;
    x->age = s->last_evicted;
    x->used = ++s->clock;
}

/* All beginnings of the tokens are used: the conversation lives, and may part again at any of them.
 */
const struct state_snapshot *state_snapshots_find(struct state_snapshots *s,
                                                  const struct kv_prefix *prefix, bool passing)
{
    struct entry *longest = find_longest(s, prefix);
    for (struct entry *x = s->entries; x < s->entries + s->options.count; x++)
        if (has_beginning(s, prefix, longest, x))
            use(s, x, passing);
    return longest ? &longest->snapshot : NULL;
}

uint32_t state_snapshots_longest(const struct state_snapshots *s, const struct kv_prefix *prefix)
{
    const struct entry *longest = find_longest(s, prefix);
    return longest ? longest->snapshot.position : 0;
}

/* ---- Which one goes ---- */

static bool counts(const struct entry *x)
{
    return x->snapshot.position > 0 && !x->passing;
}

static void find_ends(struct state_snapshots *s)
{
    const struct entry *end = s->entries + s->options.count;
    for (struct entry *x = s->entries; x < end; x++) {
        x->is_end = counts(x);
        for (const struct entry *y = s->entries; y < end && x->is_end; y++)
            x->is_end = y == x || !counts(y) || !*begins(s, x, y);
    }
}

/* What the loss of a snapshot costs, and how long ago it was used (GreedyDual, as for pages:
 * prefix_cache.h). That of a passing request costs nothing, and may go before the others. 0: there
 * is nothing to lose. */
static uint64_t value(const struct state_snapshots *s, const struct entry *x)
{
    uint32_t before = 0, ends = 0;
    if (x->snapshot.position == 0)
        return 0;
    if (x->passing)
        return x->age;
    for (const struct entry *y = s->entries; y < s->entries + s->options.count; y++) {
        if (y == x || !counts(y))
            continue;
        if (*begins(s, y, x) && y->snapshot.position > before)
            before = y->snapshot.position;
        ends += y->is_end && *begins(s, x, y);
    }
    uint32_t weight = x->is_end ? END_WEIGHT : ends > 0 ? ends : 1; /* 0: their kinds differ */
    return x->age + (uint64_t)(x->snapshot.position - before) * weight;
}

/* NULL: all are reserved. */
static struct entry *find_victim(struct state_snapshots *s)
{
    struct entry *victim = NULL;
    uint64_t least = 0;
    find_ends(s);
    for (struct entry *x = s->entries; x < s->entries + s->options.count; x++) {
        uint64_t v = x->reserved ? 0 : value(s, x);
        if (x->reserved || (victim && (v > least || (v == least && x->used >= victim->used))))
            continue;
        victim = x;
        least = v;
    }
    if (victim && least > s->last_evicted)
        s->last_evicted = least;
    return victim;
}

struct state_snapshot *state_snapshots_reserve(struct state_snapshots *s,
                                               const struct kv_prefix *prefix, bool passing)
{
    uint32_t n = prefix->n;
    if (n == 0 || n > s->options.context)
        return NULL;
    for (struct entry *x = s->entries; x < s->entries + s->options.count; x++)
        if (x->snapshot.position == n && is_of(s, x, prefix, 0)) {
            use(s, x, passing);
            return NULL;
        }
    struct entry *victim = find_victim(s);
    if (!victim)
        return NULL;
    victim->snapshot.position = 0;
    victim->reserved = n;
    victim->n_prompt = prefix->n_prompt;
    victim->passing = passing;
    victim->salt = prefix->salt;
    memcpy(victim->tokens, prefix->tokens, n * sizeof *victim->tokens);
    return &victim->snapshot;
}

static bool is_beginning(const struct state_snapshots *s, const struct entry *x,
                         const struct entry *y)
{
    const struct kv_prefix prefix = {y->tokens, y->snapshot.position, y->n_prompt, y->salt};
    return x->snapshot.position < prefix.n && is_of(s, x, &prefix, 0);
}

/* x is kept now: finds its beginnings. */
static void find_beginnings(struct state_snapshots *s, const struct entry *x)
{
    const struct kv_prefix before = {x->tokens, x->snapshot.position - 1, x->n_prompt, x->salt};
    const struct entry *longest = find_longest(s, &before);
    for (const struct entry *y = s->entries; y < s->entries + s->options.count; y++)
        *begins(s, y, x) = has_beginning(s, &before, longest, y);
}

/* Finds the snapshots that begin with x. Where one does, so do all longer ones that begin with it,
 * and those that it begins with. */
static void find_continuations(struct state_snapshots *s, const struct entry *x)
{
    const struct entry *end = s->entries + s->options.count;
    for (const struct entry *y = s->entries; y < end; y++)
        *begins(s, x, y) = false;
    for (const struct entry *y = s->entries; y < end; y++) {
        if (*begins(s, x, y) || !is_beginning(s, x, y))
            continue;
        for (const struct entry *z = s->entries; z < end; z++)
            if (z->snapshot.position > x->snapshot.position)
                *begins(s, x, z) |= z == y || *begins(s, y, z) || *begins(s, z, y);
    }
}

void state_snapshots_keep(struct state_snapshots *s, struct state_snapshot *snapshot)
{
    struct entry *x = (struct entry *)snapshot;
    snapshot->position = x->reserved;
    x->reserved = 0;
    use(s, x, x->passing);
    find_beginnings(s, x);
    find_continuations(s, x);
}

void state_snapshots_drop(struct state_snapshots *s, struct state_snapshot *snapshot)
{
    (void)s;
    ((struct entry *)snapshot)->reserved = 0;
}

void state_snapshots_clear(struct state_snapshots *s)
{
    for (struct entry *x = s->entries; x < s->entries + s->options.count; x++)
        if (!x->reserved)
            x->snapshot.position = 0;
}

enum error_code state_snapshots_new(const struct state_snapshots_options *options,
                                    struct state_snapshots **out, struct error *e)
{
    struct state_snapshots *s;
    struct entry *entries;
    bool *begins;
    size_t count = options->count;
    size_t state = round_up(options->state_bytes, 64);
    size_t tokens = round_up(options->context * sizeof(uint32_t), 64);
    if (!ARRAYS_NEW(ARRAY(s, 1), ARRAY(entries, count), ARRAY(begins, count * count)))
        return error_set(e, ERROR_MEMORY, "no memory for the table of state snapshots");
    s->options = *options;
    s->entries = entries;
    s->begins = begins;
    s->memory_bytes = count * (state + tokens);
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
        entries[i].tokens = (uint32_t *)(s->memory + count * state + i * tokens);
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
