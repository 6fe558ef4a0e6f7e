/* Deterministic automata; see dfa.h. */
#include "grammar/dfa.h"

#include "base/arrays.h"
#include "base/utf8.h"

#include <stdlib.h>
#include <string.h>

void dfa_init(struct dfa *d, uint32_t states_max)
{
    *d = (struct dfa){.states_max = states_max};
}

void dfa_fini(struct dfa *d)
{
    free(d->next);
    free(d->accepts);
    *d = (struct dfa){0};
}

uint32_t dfa_state(struct dfa *d)
{
    if (d->n_states == d->states_max)
        return DFA_NONE;
    if (d->n_states == d->capacity) {
        uint32_t capacity = d->capacity ? d->capacity * 2 : 16;
        void *next = realloc(d->next, capacity * sizeof *d->next);
        if (next)
            d->next = next;
        void *accepts = next ? realloc(d->accepts, capacity * sizeof *d->accepts) : NULL;
        if (!accepts)
            return DFA_NONE;
        d->accepts = accepts;
        d->capacity = capacity;
    }
    memset(d->next[d->n_states], 0xff, sizeof d->next[0]);
    d->accepts[d->n_states] = false;
    return d->n_states++;
}

static enum error_code too_large(const struct dfa *d, struct error *e)
{
    return d->n_states == d->states_max
               ? error_set(e, ERROR_LIMIT, "needs a deterministic automaton of more than %u states",
                           d->states_max)
               : error_set(e, ERROR_MEMORY, "out of memory for a grammar");
}

/* -- Pairs of states of two automata, found as they are needed -- */

struct pair {
    uint32_t a, b;
};

struct pairs {
    struct dfa made;
    struct pair *of_state; /* [capacity of table / 2] */
    uint32_t *table;       /* by hash: state + 1; 0: empty */
    uint32_t mask;
};

static bool pairs_init(struct pairs *p, uint32_t states_max)
{
    uint32_t size = 64;
    while (size < states_max * (uint64_t)2)
        size *= 2;
    dfa_init(&p->made, states_max);
    p->mask = size - 1;
    p->of_state = calloc(states_max + (size_t)1, sizeof *p->of_state);
    p->table = calloc(size, sizeof *p->table);
    return p->of_state && p->table;
}

static void pairs_fini(struct pairs *p)
{
    free(p->of_state);
    free(p->table);
    dfa_fini(&p->made);
}

/* The state of a pair, new or not; DFA_NONE: no space. */
static uint32_t pair_state(struct pairs *p, uint32_t a, uint32_t b)
{
    uint32_t at = (a * 0x9e3779b1u ^ b * 0x85ebca6bu) & p->mask;
    for (; p->table[at]; at = (at + 1) & p->mask) {
        struct pair known = p->of_state[p->table[at] - 1];
        if (known.a == a && known.b == b)
            return p->table[at] - 1;
    }
    uint32_t state = dfa_state(&p->made);
    if (state == DFA_NONE)
        return DFA_NONE;
    p->of_state[state] = (struct pair){a, b};
    p->table[at] = state + 1;
    return state;
}

static enum error_code replace(struct dfa *a, struct pairs *p, enum error_code error,
                               struct error *e)
{
    if (!error) {
        p->made.work = a->work + p->made.n_states * (uint64_t)256;
        dfa_fini(a);
        *a = p->made;
        p->made = (struct dfa){0};
        error = dfa_trim(a, e);
    }
    pairs_fini(p);
    return error;
}

enum error_code dfa_combine(struct dfa *a, const struct dfa *b, enum dfa_product kind,
                            struct error *e)
{
    struct pairs p;
    enum error_code error = ERROR_OK;
    if (!pairs_init(&p, a->states_max) || (a->n_states && b->n_states && pair_state(&p, 0, 0)) ||
        (a->n_states && !b->n_states && kind == DFA_WITHOUT && pair_state(&p, 0, DFA_NONE)))
        error = too_large(&p.made, e);
    for (uint32_t s = 0; s < p.made.n_states && !error; s++) {
        struct pair at = p.of_state[s];
        bool in_b = at.b != DFA_NONE && b->accepts[at.b];
        p.made.accepts[s] = a->accepts[at.a] && in_b == (kind == DFA_BOTH);
        for (unsigned byte = 0; byte < 256; byte++) {
            uint32_t x = a->next[at.a][byte];
            uint32_t y = at.b == DFA_NONE ? DFA_NONE : b->next[at.b][byte];
            if (x == DFA_NONE || (y == DFA_NONE && kind == DFA_BOTH))
                continue;
            uint32_t next = pair_state(&p, x, y);
            if (next == DFA_NONE) {
                error = too_large(&p.made, e);
                break;
            }
            p.made.next[s][byte] = next;
        }
    }
    return replace(a, &p, error, e);
}

/* Counts the bytes that begin a code point, up to max, or up to min if there is no maximum. */
enum error_code dfa_limit_length(struct dfa *a, struct count_bounds length, struct error *e)
{
    struct pairs p;
    uint32_t most = bounds_last(length);
    enum error_code error = ERROR_OK;
    if (!pairs_init(&p, a->states_max) || (a->n_states && pair_state(&p, 0, 0)))
        error = too_large(&p.made, e);
    for (uint32_t s = 0; s < p.made.n_states && !error; s++) {
        struct pair at = p.of_state[s];
        p.made.accepts[s] = a->accepts[at.a] && at.b >= length.min;
        for (unsigned byte = 0; byte < 256; byte++) {
            uint32_t x = a->next[at.a][byte], count = at.b + !utf8_continues((char)byte);
            if (x == DFA_NONE || (count > most && length.max != BOUNDS_OPEN))
                continue;
            uint32_t next = pair_state(&p, x, count > most ? most : count);
            if (next == DFA_NONE) {
                error = too_large(&p.made, e);
                break;
            }
            p.made.next[s][byte] = next;
        }
    }
    return replace(a, &p, error, e);
}

/* -- Trimming -- */

/* The target of a byte's edge; DFA_NONE: none, or the same as that of the byte before. */
static uint32_t new_target(const struct dfa *d, uint32_t s, unsigned byte)
{
    uint32_t target = d->next[s][byte];
    return byte > 0 && target == d->next[s][byte - 1] ? DFA_NONE : target;
}

/* first[s]: how many edges lead to s; becomes the place in sources from which the states with an
 * edge to s are listed, up to first[s + 1]. */
static void list_sources(const struct dfa *d, uint32_t *first, uint32_t *sources)
{
    for (uint32_t s = 1; s <= d->n_states; s++)
        first[s] += first[s - 1]; /* the place behind those of s */
    for (uint32_t s = 0; s < d->n_states; s++)
        for (unsigned byte = 0; byte < 256; byte++)
            if (new_target(d, s, byte) != DFA_NONE)
                sources[--first[d->next[s][byte]]] = s;
}

static void follow_sources(const struct dfa *d, const uint32_t *first, const uint32_t *sources,
                           uint32_t *stack, uint32_t *live)
{
    uint32_t n_stack = 0;
    for (uint32_t s = 0; s < d->n_states; s++)
        if (d->accepts[s])
            live[stack[n_stack++] = s] = 1;
    while (n_stack > 0) {
        uint32_t s = stack[--n_stack];
        for (uint32_t i = first[s]; i < first[s + 1]; i++)
            if (!live[sources[i]])
                live[stack[n_stack++] = sources[i]] = 1;
    }
}

/* live[s]: 1 where s reaches an accepting state. False: no memory. */
static bool mark_live(const struct dfa *d, uint32_t *live)
{
    uint32_t *first, *stack, *sources, n_edges = 0;
    void *memory = ARRAYS_NEW(ARRAY(first, d->n_states + (size_t)1), ARRAY(stack, d->n_states));
    if (!memory)
        return false;
    for (uint32_t s = 0; s < d->n_states; s++)
        for (unsigned byte = 0; byte < 256; byte++)
            if (new_target(d, s, byte) != DFA_NONE) {
                first[d->next[s][byte]]++;
                n_edges++;
            }
    sources = malloc((n_edges + (size_t)1) * sizeof *sources);
    if (sources) {
        list_sources(d, first, sources);
        follow_sources(d, first, sources, stack, live);
    }
    free(sources);
    free(memory);
    return sources != NULL;
}

enum error_code dfa_trim(struct dfa *d, struct error *e)
{
    uint32_t *number = calloc(d->n_states + (size_t)1, sizeof *number), kept = 0;
    if (!number || !mark_live(d, number)) {
        free(number);
        return error_set(e, ERROR_MEMORY, "out of memory for a grammar");
    }
    for (uint32_t s = 0; s < d->n_states; s++)
        number[s] = number[s] ? kept++ : DFA_NONE;
    if (d->n_states && number[0] == DFA_NONE)
        kept = 0; /* nothing is accepted */
    for (uint32_t s = 0; s < d->n_states && kept; s++) {
        if (number[s] == DFA_NONE)
            continue;
        for (unsigned byte = 0; byte < 256; byte++) {
            uint32_t next = d->next[s][byte];
            d->next[number[s]][byte] = next == DFA_NONE ? DFA_NONE : number[next];
        }
        d->accepts[number[s]] = d->accepts[s];
    }
    d->n_states = kept;
    free(number);
    return ERROR_OK;
}

bool dfa_is_empty(const struct dfa *d)
{
    return d->n_states == 0;
}

bool dfa_matches(const struct dfa *d, const void *text, size_t len)
{
    const uint8_t *bytes = text;
    uint32_t s = d->n_states ? 0 : DFA_NONE;
    for (size_t i = 0; i < len && s != DFA_NONE; i++)
        s = d->next[s][bytes[i]];
    return s != DFA_NONE && d->accepts[s];
}

/* -- Into a network -- */

static void emit_ranges(const struct dfa *d, struct network *n, uint32_t s, uint32_t from,
                        const uint32_t *target, bool json)
{
    for (unsigned low = json ? 0x20 : 0; low < 256;) {
        unsigned high = low;
        uint32_t to = d->next[s][low];
        bool special = json && (low == '"' || low == '\\');
        while (!special && high < 255 && d->next[s][high + 1] == to &&
               !(json && (high + 1 == '"' || high + 1 == '\\')))
            high++;
        if (to != DFA_NONE && !special)
            network_byte(n, from, low, high, target[to]);
        low = high + 1;
    }
}

static const char *short_escape(unsigned byte)
{
    static const char from[] = "\"\\\b\f\n\r\t", to[] = "\"\\bfnrt";
    const char *found = byte ? strchr(from, (int)byte) : NULL;
    return found ? to + (found - from) : NULL;
}

bool dfa_is_escaped(unsigned byte)
{
    return byte < 0x20 || byte == '"' || byte == '\\';
}

/* Escaped characters lead to the same states from a and b. */
static bool same_escapes(const struct dfa *d, uint32_t a, uint32_t b)
{
    for (unsigned byte = 0; byte <= '\\'; byte++)
        if (dfa_is_escaped(byte) && d->next[a][byte] != d->next[b][byte])
            return false;
    return true;
}

/* Returns the state behind a backslash; NETWORK_NONE: no character is escaped here. */
static uint32_t emit_escapes(const struct dfa *d, struct network *n, uint32_t s, uint32_t from,
                             const uint32_t *target)
{
    uint32_t escape = NETWORK_NONE;
    for (unsigned byte = 0; byte <= '\\' && !n->error; byte++) {
        uint32_t to = d->next[s][byte];
        const char *letter = short_escape(byte);
        char code[8];
        if (to == DFA_NONE || !dfa_is_escaped(byte))
            continue;
        if (escape == NETWORK_NONE)
            escape = network_literal(n, from, "\\", 1);
        if (letter) {
            network_byte(n, escape, (uint8_t)*letter, (uint8_t)*letter, target[to]);
            continue;
        }
        memcpy(code, "u000", 4);
        code[3] = (char)('0' + (byte >> 4));
        uint32_t last = network_trie(n, escape, code, 4);
        unsigned digit = byte & 15;
        network_byte(n, last, "0123456789abcdef"[digit], "0123456789abcdef"[digit], target[to]);
        if (digit >= 10)
            network_byte(n, last, 'A' + digit - 10, 'A' + digit - 10, target[to]);
    }
    return escape;
}

void dfa_emit_edges(const struct dfa *d, struct network *n, const uint32_t *source,
                    const uint32_t *target, bool json)
{
    uint32_t like = 0, escape = NETWORK_NONE; /* the last escapes */
    for (uint32_t s = 0; s < d->n_states && !n->error; s++) {
        emit_ranges(d, n, s, source[s], target, json);
        if (json && escape != NETWORK_NONE && same_escapes(d, s, like)) {
            network_byte(n, source[s], '\\', '\\', escape);
        } else if (json) {
            uint32_t made = emit_escapes(d, n, s, source[s], target);
            escape = made == NETWORK_NONE ? escape : made;
            like = made == NETWORK_NONE ? like : s;
        }
    }
}

void dfa_emit_states(const struct dfa *d, struct network *n, uint32_t *states, uint32_t to,
                     bool json)
{
    for (uint32_t s = 0; s < d->n_states; s++)
        states[s] = network_state(n);
    if (!n->error)
        dfa_emit_edges(d, n, states, states, json);
    for (uint32_t s = 0; s < d->n_states && !n->error; s++)
        if (d->accepts[s])
            network_empty(n, states[s], to);
}

void dfa_emit(const struct dfa *d, struct network *n, uint32_t from, uint32_t to, bool json)
{
    uint32_t *states = malloc((d->n_states + (size_t)1) * sizeof *states);
    if (!states) {
        n->error = n->error ? n->error : ERROR_MEMORY;
        return;
    }
    dfa_emit_states(d, n, states, to, json);
    if (d->n_states && !n->error)
        network_empty(n, from, states[0]);
    free(states);
}

static bool words_from(const struct dfa *d, uint32_t state, char *word, size_t len,
                       dfa_take_word *take, void *context)
{
    word[len] = '\0';
    if (d->accepts[state] && !take(context, word))
        return false;
    if (d->next[state][0] != DFA_NONE)
        return false;
    for (unsigned byte = 1; byte < 256; byte++) {
        uint32_t next = d->next[state][byte];
        word[len] = (char)byte;
        if (next != DFA_NONE &&
            (len == DFA_WORD_BYTES || !words_from(d, next, word, len + 1, take, context)))
            return false;
    }
    return true;
}

bool dfa_each_word(const struct dfa *d, dfa_take_word *take, void *context)
{
    char word[DFA_WORD_BYTES + 1];
    return d->n_states == 0 || words_from(d, 0, word, 0, take, context);
}
