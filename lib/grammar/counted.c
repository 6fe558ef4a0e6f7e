/* Counted texts; see counted.h.
 *
 * 2^i characters from a point are 2^(i-1) from there, and as many from the point where these end:
 *
 *     exact[i][a]   -- exact[i-1][a] --> after  -- exit k --> (k) -- exact[i-1][k] --> end
 *
 * The second call leaves its own exit to the caller of the first one.
 *
 * The heights of these rules (finish.c) hardly depend on the point. exact[i] and less[i] have the
 * height i, tail has 0. less[0] has none at a point where no text ends. rest has 1 there, else 0;
 * it is called only behind exact[i] with i > 0, whose calls nest as deep as those of rest at any
 * point. So the depth that a call of exact[i] needs suffices for what follows any of its exits. */
#include "grammar/counted.h"

#include "grammar/lengths.h"
#include "grammar/subschema.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { POINTS_MAX = 1024, TAIL_STATES_MAX = 2048, BYTES = 256 };

/* Is a state within a character? A trimmed dfa goes on from there with a continuation byte. */
static bool is_within(const struct dfa *d, uint32_t s)
{
    for (unsigned byte = 0x80; byte < 0xc0; byte++)
        if (d->next[s][byte] != DFA_NONE)
            return true;
    return false;
}

/* What is known of a state of a dfa. */
enum {
    WITHIN = 1, /* a character */
    ENDS = 2,   /* a character, or the rest of one, leads from here to the end of a text */
};

static bool finds_end(const struct dfa *d, const uint8_t *known, uint32_t s)
{
    for (unsigned byte = 0; byte < BYTES; byte++) {
        uint32_t next = d->next[s][byte];
        if (next != DFA_NONE && (known[next] & WITHIN ? known[next] & ENDS : d->accepts[next]))
            return true;
    }
    return false;
}

/* From the last bytes of characters to the first ones. known [n_states]: WITHIN. */
static void find_ends(const struct dfa *d, uint8_t *known)
{
    bool again = true;
    for (unsigned round = 0; round < CHARACTER_BYTES && again; round++) {
        again = false;
        for (uint32_t s = d->n_states; s-- > 0;)
            if (!(known[s] & ENDS) && finds_end(d, known, s)) {
                known[s] |= ENDS;
                again = true;
            }
    }
}

/* Do all characters that JSON escapes lead from s to a text? */
static bool escapes_end(const struct dfa *d, uint32_t s)
{
    for (unsigned byte = 0; byte <= '\\'; byte++) {
        uint32_t next = d->next[s][byte];
        if (dfa_is_escaped(byte) && next != DFA_NONE && !d->accepts[next])
            return false;
    }
    return true;
}

/* The last character of a count leads to a text, whatever its first byte. */
static bool ends_anywhere(const struct dfa *d, const uint8_t *known, bool json)
{
    for (uint32_t s = 0; s < d->n_states; s++)
        if (!(known[s] & ENDS) || (json && !escapes_end(d, s)))
            return false;
    return true;
}

/* Rules with a start of their own each and the common end; the first one. */
static uint32_t make_rules(const struct counted *c, struct network *n)
{
    uint32_t first = n->n_rules;
    for (uint32_t k = 0; k < c->points; k++)
        network_rule_of(n, network_state(n), c->end);
    return first;
}

/* Where a text is after some characters: states [points], a point each, or one: at point 0. */
struct front {
    uint32_t first, count;
};

/* Each state of the front calls the rule of its point. */
static void call_each(struct network *n, struct front f, uint32_t rules, uint32_t to)
{
    for (uint32_t k = 0; k < f.count && !n->error; k++)
        network_call(n, f.first + k, rules + k, to);
}

static struct front call_on(const struct counted *c, struct network *n, struct front f,
                            uint32_t rules)
{
    uint32_t after = network_state(n);
    struct front next = {n->n_states, c->points};
    call_each(n, f, rules, after);
    for (uint32_t k = 0; k < c->points; k++) {
        uint32_t point = network_state(n);
        if (!n->error)
            network_after(n, after, k, point);
    }
    return next;
}

static struct front starts(const struct counted *c, const struct network *n, uint32_t rules)
{
    return (struct front){n->error ? 0 : n->rules[rules].start, c->points};
}

/* One character: exact[0]. of_points [points]: states of the dfa. */
static void make_character(struct counted *c, const struct dfa *d, const uint32_t *of_points,
                           bool json, struct network *n)
{
    uint32_t *source = malloc(2 * (d->n_states + (size_t)1) * sizeof *source);
    uint32_t *target = source ? source + d->n_states + 1 : NULL;
    if (!source) {
        n->error = n->error ? n->error : ERROR_MEMORY;
        return;
    }
    c->exact[0] = make_rules(c, n);
    for (uint32_t s = 0; s < d->n_states; s++)
        source[s] = target[s] = network_state(n);
    for (uint32_t k = 0; k < c->points && !n->error; k++) {
        source[of_points[k]] = n->rules[c->exact[0] + k].start;
        network_exit(n, target[of_points[k]], k, c->end);
    }
    if (!n->error)
        dfa_emit_edges(d, n, source, target, json);
    free(source);
}

static void make_ends(struct counted *c, const struct dfa *d, const uint32_t *of_points,
                      struct network *n)
{
    c->less[0] = make_rules(c, n);
    c->rest = make_rules(c, n);
    uint32_t after = network_state(n);
    call_each(n, starts(c, n, c->rest), c->exact[0], after);
    for (uint32_t k = 0; k < c->points && !n->error; k++) {
        uint32_t rest = n->rules[c->rest + k].start;
        network_after(n, after, k, rest);
        if (!d->accepts[of_points[k]])
            continue;
        network_empty(n, rest, c->end);
        network_empty(n, n->rules[c->less[0] + k].start, c->end);
    }
}

/* ---- The tail ----
 *
 * Where a count ends, only ways are left that reach the end of a text in time. So the last
 * characters have states of their own: one for each state of the dfa and number of characters that
 * may still begin. */

/* A dfa of the last characters: of the pairs of a state and a number of characters those that a
 * point with c->tail_length characters leads to. */
struct tail {
    struct dfa d;
    uint32_t starts[POINTS_MAX];                             /* of the points */
    uint32_t number[TAIL_STATES_MAX], pair[TAIL_STATES_MAX]; /* characters * n_states + state */
};

static uint32_t tail_state(struct tail *t, uint32_t pair)
{
    if (t->number[pair] == DFA_NONE) {
        uint32_t state = t->number[pair] = dfa_state(&t->d);
        if (state != DFA_NONE)
            t->pair[state] = pair;
    }
    return t->number[pair];
}

/* False: no memory. */
static bool extend_tail(struct tail *t, const struct dfa *d, const uint32_t *distance,
                        uint32_t state)
{
    uint32_t s = t->pair[state] % d->n_states, left = t->pair[state] / d->n_states;
    t->d.accepts[state] = d->accepts[s];
    for (unsigned byte = 0; byte < BYTES; byte++) {
        uint32_t next = d->next[s][byte], taken = begins_character(byte);
        if (next == DFA_NONE || left < taken || distance[next] > left - taken)
            continue;
        uint32_t to = tail_state(t, (left - taken) * d->n_states + next);
        if (to == DFA_NONE)
            return false;
        t->d.next[state][byte] = to;
    }
    return true;
}

static enum error_code make_tail(const struct counted *c, struct schema *s, const struct dfa *d,
                                 const uint32_t *of_points, const uint32_t *distance,
                                 struct tail *t)
{
    enum error_code error = ERROR_OK;
    memset(t->number, 0xff, sizeof t->number);
    for (uint32_t k = 0; k < c->points; k++) {
        t->starts[k] = tail_state(t, c->tail_length * d->n_states + of_points[k]);
        if (t->starts[k] == DFA_NONE)
            return schema_out_of_memory(s);
    }
    for (uint32_t state = 0; state < t->d.n_states && !error; state++) {
        error = schema_work(s, BYTES);
        if (!error && !extend_tail(t, d, distance, state))
            error = schema_out_of_memory(s);
    }
    return error;
}

static void emit_tail(struct counted *c, const struct tail *t, bool json, struct network *n)
{
    uint32_t states[TAIL_STATES_MAX];
    dfa_emit_states(&t->d, n, states, c->end, json);
    c->tail = n->n_rules;
    for (uint32_t k = 0; k < c->points; k++)
        network_rule_of(n, states[t->starts[k]], c->end);
}

/* How many characters may come or not. */
static uint32_t free_length(struct count_bounds length)
{
    return length.max == BOUNDS_OPEN ? BOUNDS_OPEN : length.max - length.min;
}

/* *found, false before: the tail is short enough, and fits into the length of the text. */
static enum error_code find_tail(struct counted *c, struct schema *s, const struct dfa *d,
                                 const uint32_t *of_points, uint32_t length, struct tail *t,
                                 bool *found)
{
    uint32_t distance[TAIL_STATES_MAX];
    if (d->n_states > TAIL_STATES_MAX)
        return ERROR_OK;
    uint32_t most = TAIL_STATES_MAX / d->n_states - 1;
    enum error_code error = lengths_to_end(s, d, most, distance);
    for (uint32_t k = 0; k < c->points && !error; k++)
        if (distance[of_points[k]] > c->tail_length)
            c->tail_length = distance[of_points[k]];
    if (error || c->tail_length > most || c->tail_length > length)
        return error;
    *found = true;
    return make_tail(c, s, d, of_points, distance, t);
}

static bool all_go_on(const struct dfa *d)
{
    for (uint32_t s = 0; s < d->n_states; s++) {
        unsigned byte = 0;
        while (byte < BYTES && d->next[s][byte] == DFA_NONE)
            byte++;
        if (byte == BYTES)
            return false;
    }
    return true;
}

static void make_counted(struct counted *c, const struct dfa *d, const uint32_t *of_points,
                         const struct tail *t, bool json, struct network *n)
{
    c->end = network_state(n);
    make_character(c, d, of_points, json, n);
    make_ends(c, d, of_points, n);
    c->tail = c->less[0];
    if (!c->any_count)
        emit_tail(c, t, json, n);
}

/* Finds the points; false: there are too many. known [n_states]. */
static bool find_points(struct counted *c, const struct dfa *d, uint32_t *of_points, uint8_t *known)
{
    for (uint32_t s = 0; s < d->n_states; s++) {
        known[s] = is_within(d, s) ? WITHIN : 0;
        if (known[s] & WITHIN)
            continue;
        if (c->points == POINTS_MAX)
            return false;
        of_points[c->points++] = s;
    }
    return c->points > 0;
}

enum { ROUNDS = CHARACTER_BYTES + 1 }; /* over all edges, at most, but for the tail */

static enum error_code try_to_count(struct counted *c, struct schema *s, const struct dfa *d,
                                    bool json, struct count_bounds length, uint8_t *known,
                                    bool *fits)
{
    uint32_t of_points[POINTS_MAX];
    struct tail t;
    enum error_code error = ERROR_OK;
    if (!find_points(c, d, of_points, known))
        return ERROR_OK;
    error = schema_work(s, d->n_states * (uint64_t)(ROUNDS * BYTES));
    if (error)
        return error;
    find_ends(d, known);
    dfa_init(&t.d, TAIL_STATES_MAX);
    *fits = c->any_count = ends_anywhere(d, known, json);
    c->goes_on = all_go_on(d);
    if (!*fits && (length.min == 0 || c->goes_on))
        error = find_tail(c, s, d, of_points, free_length(length), &t, fits);
    if (*fits && !error)
        make_counted(c, d, of_points, &t, json, s->n);
    dfa_fini(&t.d);
    return error;
}

enum error_code counted_init(struct counted *c, struct schema *s, const struct dfa *d, bool json,
                             struct count_bounds length, bool *fits)
{
    *c = (struct counted){.bits = 1};
    *fits = false;
    enum error_code error = schema_work(s, d->n_states * (uint64_t)BYTES);
    uint8_t *known = error ? NULL : malloc(d->n_states + (size_t)1);
    if (!error && !known)
        error = schema_out_of_memory(s);
    if (!error)
        error = try_to_count(c, s, d, json, length, known, fits);
    if (error || !*fits)
        c->points = 0;
    free(known);
    return error;
}

bool counted_fits(const struct counted *c, struct count_bounds length)
{
    return c->points && (c->any_count || ((length.min == 0 || c->goes_on) &&
                                          free_length(length) >= c->tail_length));
}

static void add_bit(struct counted *c, struct network *n)
{
    uint32_t i = c->bits++;
    c->exact[i] = make_rules(c, n);
    c->less[i] = make_rules(c, n);
    struct front second = call_on(c, n, starts(c, n, c->exact[i]), c->exact[i - 1]);
    call_each(n, second, c->exact[i - 1], c->end);
    struct front few = starts(c, n, c->less[i]);
    call_each(n, few, c->less[i - 1], c->end);
    call_each(n, call_on(c, n, few, c->exact[i - 1]), c->less[i - 1], c->end);
}

static unsigned highest_bit(uint32_t count)
{
    return 31 - (unsigned)__builtin_clz(count);
}

void counted_add(struct counted *c, struct network *n, uint32_t from, struct count_bounds length,
                 uint32_t to)
{
    struct front f = {from, 1};
    uint32_t most = bounds_last(length);
    while (most && c->bits <= highest_bit(most) && !n->error)
        add_bit(c, n);
    for (uint32_t left = length.min; left && !n->error; left -= 1u << highest_bit(left))
        f = call_on(c, n, f, c->exact[highest_bit(left)]);
    if (length.max == BOUNDS_OPEN) {
        assert(length.min > 1); /* heights, see above */
        call_each(n, f, c->rest, to);
        return;
    }
    assert(free_length(length) >= c->tail_length);
    uint32_t left = free_length(length) - c->tail_length;
    for (; left && !n->error; left -= 1u << highest_bit(left)) {
        call_each(n, f, c->less[highest_bit(left)], to);
        f = call_on(c, n, f, c->exact[highest_bit(left)]);
    }
    call_each(n, f, c->tail, to);
}
