/* Counted texts; see counted.h.
 *
 * 2^i characters from a point are 2^(i-1) from there, and as many from the point where these end:
 *
 *     exact[i][a]   -- exact[i-1][a] --> after  -- exit k --> (k) -- exact[i-1][k] --> end
 *
 * The second call leaves its own exit to the caller of the first one. */
#include "grammar/counted.h"

#include <stdlib.h>

enum { POINTS_MAX = 64, TAIL_STATES_MAX = 2048 };

/* Is a state within a character? A trimmed dfa goes on from there with a continuation byte. */
static bool is_within(const struct dfa *d, uint32_t s)
{
    for (unsigned byte = 0x80; byte < 0xc0; byte++)
        if (d->next[s][byte] != DFA_NONE)
            return true;
    return false;
}

/* Does a character, or the rest of one, lead from s to a text? */
static bool character_ends(const struct dfa *d, uint32_t s, unsigned depth)
{
    for (unsigned byte = 0; byte < 256; byte++) {
        uint32_t next = d->next[s][byte];
        if (next == DFA_NONE)
            continue;
        if (is_within(d, next) ? depth < 4 && character_ends(d, next, depth + 1) : d->accepts[next])
            return true;
    }
    return false;
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
static bool ends_anywhere(const struct dfa *d, bool json)
{
    for (uint32_t s = 0; s < d->n_states; s++)
        if (!character_ends(d, s, 1) || (json && !escapes_end(d, s)))
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

static bool begins_character(unsigned byte)
{
    return (byte & 0xc0) != 0x80;
}

/* distance [n_states]: how many characters must still begin from a state to the end of a text. */
static void find_distances(const struct dfa *d, uint32_t *distance)
{
    for (uint32_t s = 0; s < d->n_states; s++)
        distance[s] = d->accepts[s] ? 0 : d->n_states;
    for (bool again = true; again;) {
        again = false;
        for (uint32_t s = 0; s < d->n_states; s++)
            for (unsigned byte = 0; byte < 256; byte++) {
                uint32_t next = d->next[s][byte];
                uint32_t by =
                    next == DFA_NONE ? d->n_states : distance[next] + begins_character(byte);
                if (by < distance[s]) {
                    distance[s] = by;
                    again = true;
                }
            }
    }
}

/* State r * n_states + s of *out is state s with r characters left. False: no memory. */
static bool make_tail(const struct dfa *d, const uint32_t *distance, uint32_t length,
                      struct dfa *out)
{
    uint32_t n = d->n_states;
    for (uint32_t r = 0; r <= length; r++)
        for (uint32_t s = 0; s < n; s++) {
            uint32_t state = dfa_state(out);
            if (state == DFA_NONE)
                return false;
            out->accepts[state] = d->accepts[s];
            for (unsigned byte = 0; byte < 256; byte++) {
                uint32_t next = d->next[s][byte], taken = begins_character(byte);
                if (next != DFA_NONE && r >= taken && distance[next] <= r - taken)
                    out->next[state][byte] = (r - taken) * n + next;
            }
        }
    return true;
}

static void emit_tail(struct counted *c, const struct dfa *tail, const uint32_t *of_points,
                      uint32_t n_states, bool json, struct network *n)
{
    uint32_t *states = malloc(tail->n_states * sizeof *states);
    if (!states) {
        n->error = n->error ? n->error : ERROR_MEMORY;
        return;
    }
    for (uint32_t s = 0; s < tail->n_states; s++)
        states[s] = network_state(n);
    if (!n->error)
        dfa_emit_edges(tail, n, states, states, json);
    for (uint32_t s = 0; s < tail->n_states && !n->error; s++)
        if (tail->accepts[s])
            network_empty(n, states[s], c->end);
    c->tail = n->n_rules;
    for (uint32_t k = 0; k < c->points; k++)
        network_rule_of(n, states[c->tail_length * n_states + of_points[k]], c->end);
    free(states);
}

/* False: the tail is too long, or there is no memory for it. */
static bool find_tail(struct counted *c, const struct dfa *d, const uint32_t *of_points,
                      struct dfa *tail)
{
    uint32_t *distance = malloc((d->n_states + (size_t)1) * sizeof *distance);
    if (!distance)
        return false;
    find_distances(d, distance);
    for (uint32_t k = 0; k < c->points; k++)
        if (distance[of_points[k]] > c->tail_length)
            c->tail_length = distance[of_points[k]];
    bool found = (c->tail_length + (uint64_t)1) * d->n_states <= TAIL_STATES_MAX &&
                 make_tail(d, distance, c->tail_length, tail);
    free(distance);
    return found;
}

static bool all_go_on(const struct dfa *d)
{
    for (uint32_t s = 0; s < d->n_states; s++) {
        unsigned byte = 0;
        while (byte < 256 && d->next[s][byte] == DFA_NONE)
            byte++;
        if (byte == 256)
            return false;
    }
    return true;
}

bool counted_init(struct counted *c, const struct dfa *d, bool json, uint32_t min, uint32_t max,
                  struct network *n)
{
    uint32_t of_points[POINTS_MAX], points = 0;
    struct dfa tail;
    *c = (struct counted){.bits = 1};
    for (uint32_t s = 0; s < d->n_states; s++)
        if (!is_within(d, s) && points++ < POINTS_MAX)
            of_points[c->points++] = s;
    dfa_init(&tail, TAIL_STATES_MAX);
    bool few = points > 0 && points <= POINTS_MAX, anywhere = few && ends_anywhere(d, json);
    bool fits =
        anywhere || (few && (min == 0 || all_go_on(d)) && find_tail(c, d, of_points, &tail) &&
                     (max == NETWORK_NONE || max - min >= c->tail_length));
    c->points = fits ? points : 0;
    c->any_count = anywhere;
    if (fits) {
        c->end = network_state(n);
        make_character(c, d, of_points, json, n);
        make_ends(c, d, of_points, n);
        c->tail = c->less[0];
        if (!anywhere)
            emit_tail(c, &tail, of_points, d->n_states, json, n);
    }
    dfa_fini(&tail);
    return fits;
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

void counted_add(struct counted *c, struct network *n, uint32_t from, uint32_t min, uint32_t max,
                 uint32_t to)
{
    struct front f = {from, 1};
    uint32_t most = max == NETWORK_NONE ? min : max;
    while (most && c->bits <= highest_bit(most) && !n->error)
        add_bit(c, n);
    for (uint32_t left = min; left && !n->error; left -= 1u << highest_bit(left))
        f = call_on(c, n, f, c->exact[highest_bit(left)]);
    if (max == NETWORK_NONE) {
        call_each(n, f, c->rest, to);
        return;
    }
    uint32_t left = max - min - c->tail_length;
    for (; left && !n->error; left -= 1u << highest_bit(left)) {
        call_each(n, f, c->less[highest_bit(left)], to);
        f = call_on(c, n, f, c->exact[highest_bit(left)]);
    }
    call_each(n, f, c->tail, to);
}
