/* Decimal numbers and their texts; see decimal.h.
 *
 * The automaton of a range reads digits from the left and keeps, for each bound, whether the digits
 * so far are less than, equal to or greater than the bound's first digits. Numbers whose whole
 * parts have different lengths compare by length. Multiples take a state for each residue, so a
 * reading keeps nothing that no longer matters, and ends where the number is beyond its bound. */
#include "grammar/decimal.h"

#include "grammar/json_text.h"

#include <stdlib.h>
#include <string.h>

/* From text as printf writes it: digits, a point, an exponent. */
static bool parse(const char *text, struct decimal *out)
{
    uint8_t digits[64];
    int n = 0, point = -1, exponent = 0;
    *out = (struct decimal){.negative = text[0] == '-'};
    for (text += text[0] == '-'; *text && *text != 'e'; text++) {
        if (*text == '.')
            point = n;
        else
            digits[n++] = (uint8_t)(*text - '0');
    }
    if (*text == 'e')
        exponent = atoi(text + 1);
    point = (point < 0 ? n : point) + exponent;
    int first = 0;
    while (first < n && digits[first] == 0)
        first++;
    while (n > first && digits[n - 1] == 0)
        n--;
    if (first == n) {
        *out = (struct decimal){.n_whole = 1};
        return true;
    }
    if (point > DECIMAL_DIGITS || n - point > DECIMAL_DIGITS)
        return false;
    for (int i = first < point ? first : point; i < point; i++)
        out->whole[out->n_whole++] = i >= first && i < n ? digits[i] : 0;
    if (out->n_whole == 0)
        out->n_whole = 1;
    for (int i = point; i < n; i++)
        out->fraction[out->n_fraction++] = i >= first ? digits[i] : 0;
    return true;
}

bool decimal_from_json(const json_t *number, struct decimal *out)
{
    char text[32];
    json_number_text(number, text);
    return parse(text, out);
}

static int compare_magnitudes(const struct decimal *a, const struct decimal *b)
{
    if (a->n_whole != b->n_whole)
        return a->n_whole < b->n_whole ? -1 : 1;
    int order = memcmp(a->whole, b->whole, a->n_whole);
    /* The bytes behind a fraction are zeros. */
    return order ? order : memcmp(a->fraction, b->fraction, sizeof a->fraction);
}

int decimal_compare(const struct decimal *a, const struct decimal *b)
{
    if (a->negative != b->negative)
        return a->negative ? -1 : 1;
    return a->negative ? compare_magnitudes(b, a) : compare_magnitudes(a, b);
}

bool decimal_is_integer(const struct decimal *d)
{
    return d->n_fraction == 0;
}

static uint64_t greatest_divisor(uint64_t a, uint64_t b)
{
    while (b) {
        uint64_t t = a % b;
        a = b;
        b = t;
    }
    return a;
}

bool number_range_multiple(struct number_range *r, const struct decimal *m)
{
    uint64_t step = 0, other = r->step ? r->step : 1;
    uint32_t decimals = m->n_fraction, other_decimals = r->step ? r->step_decimals : decimals;
    if (m->negative || m->n_whole + m->n_fraction > 9)
        return false;
    for (unsigned i = 0; i < m->n_whole; i++)
        step = step * 10 + m->whole[i];
    for (unsigned i = 0; i < m->n_fraction; i++)
        step = step * 10 + m->fraction[i];
    if (step == 0)
        return false;
    for (; decimals < other_decimals; decimals++)
        step *= 10;
    for (; other_decimals < decimals; other_decimals++)
        other *= 10;
    uint64_t common = r->step ? step / greatest_divisor(step, other) * other : step;
    if (step > 1000000000 || other > 1000000000 || common > 1000000000)
        return false;
    r->step = (uint32_t)common;
    r->step_decimals = decimals;
    return true;
}

bool number_multiple_is_supported(const json_t *m)
{
    struct number_range any = {.step = 0};
    struct decimal d;
    return json_is_number(m) && decimal_from_json(m, &d) && number_range_multiple(&any, &d);
}

static uint64_t residue_after(uint64_t residue, unsigned digit, uint32_t step)
{
    return step ? (residue * 10 + digit) % step : 0;
}

/* Do the digits so far, whose residue is given, with `fraction` of them behind the point, stand for
 * a multiple? */
static bool is_multiple(const struct number_range *r, uint64_t residue, unsigned fraction)
{
    if (!r->step)
        return true;
    if (fraction > r->step_decimals)
        return false;
    for (; fraction < r->step_decimals; fraction++)
        residue = residue_after(residue, 0, r->step);
    return residue == 0;
}

bool number_range_has(const struct number_range *r, const struct decimal *d)
{
    int low = r->has_low ? decimal_compare(d, &r->low) : 1;
    int high = r->has_high ? decimal_compare(d, &r->high) : -1;
    uint64_t residue = 0;
    for (unsigned i = 0; i < d->n_whole; i++)
        residue = residue_after(residue, d->whole[i], r->step);
    for (unsigned i = 0; i < d->n_fraction; i++)
        residue = residue_after(residue, d->fraction[i], r->step);
    return (low > 0 || (low == 0 && !r->low_open)) && (high < 0 || (high == 0 && !r->high_open)) &&
           (!r->integer || decimal_is_integer(d)) && is_multiple(r, residue, d->n_fraction);
}

/* -- The automaton -- */

enum phase { PHASE_START, PHASE_SIGN, PHASE_WHOLE, PHASE_POINT, PHASE_FRACTION };
enum { LESS, EQUAL, GREATER };
enum { STATE_STEPS = 16 };

struct reading {
    uint8_t phase, negative, nonzero, zero_first;
    uint8_t whole, fraction; /* digits; behind the point see forget_whole */
    uint8_t low, high;       /* the digits so far against the bounds'; EQUAL: of the other sign */
    uint32_t residue;
};

struct readings {
    const struct number_range *r;
    struct dfa *d;
    struct reading *of_state;
    uint32_t *table, mask;
};

static uint32_t reading_state(struct readings *u, const struct reading *reading)
{
    uint32_t words[3], hash = 0;
    _Static_assert(sizeof words == sizeof *reading, "a reading has no padding");
    memcpy(words, reading, sizeof words);
    for (unsigned i = 0; i < 3; i++)
        hash = (hash ^ words[i]) * 0x9e3779b1u ^ hash >> 15;
    uint32_t at = (hash ^ hash >> 16) & u->mask;
    for (; u->table[at]; at = (at + 1) & u->mask)
        if (memcmp(&u->of_state[u->table[at] - 1], reading, sizeof *reading) == 0)
            return u->table[at] - 1;
    uint32_t state = dfa_state(u->d);
    if (state == DFA_NONE)
        return DFA_NONE;
    u->of_state[state] = *reading;
    u->table[at] = state + 1;
    return state;
}

static uint8_t compare_digit(uint8_t so_far, unsigned digit, unsigned other)
{
    if (so_far != EQUAL || digit == other)
        return so_far;
    return digit < other ? LESS : GREATER;
}

static unsigned bound_digit(const struct decimal *bound, bool fraction, unsigned index)
{
    if (fraction)
        return index < bound->n_fraction ? bound->fraction[index] : 0;
    return index < bound->n_whole ? bound->whole[index] : 0;
}

/* The whole part ended: its length decides before its digits. */
static uint8_t whole_order(const struct reading *at, uint8_t so_far, const struct decimal *bound)
{
    if (at->whole != bound->n_whole)
        return at->whole < bound->n_whole ? LESS : GREATER;
    return so_far;
}

/* -1, 0, 1: the number read so far against a bound. */
static int number_order(const struct reading *at, uint8_t so_far, const struct decimal *bound)
{
    bool negative = at->negative && at->nonzero;
    if (negative != bound->negative)
        return negative ? -1 : 1;
    uint8_t order = at->phase == PHASE_WHOLE ? whole_order(at, so_far, bound) : so_far;
    if (order == EQUAL && bound->n_fraction > at->fraction)
        order = LESS; /* the bound's last digit is not 0 */
    return negative ? EQUAL - (int)order : (int)order - EQUAL;
}

static bool reading_accepts(const struct number_range *r, const struct reading *at)
{
    if ((at->phase != PHASE_WHOLE && at->phase != PHASE_FRACTION) || (at->negative && !at->nonzero))
        return false; /* no -0 */
    int low = r->has_low ? number_order(at, at->low, &r->low) : 1;
    int high = r->has_high ? number_order(at, at->high, &r->high) : -1;
    return (low > 0 || (low == 0 && !r->low_open)) && (high < 0 || (high == 0 && !r->high_open)) &&
           is_multiple(r, at->residue, at->fraction);
}

/* A bound of a number's sign compares with its digits, one of the other sign never. */
static bool compares(const struct reading *at, bool has, const struct decimal *bound)
{
    return has && bound->negative == at->negative;
}

/* Whether the number is farther from 0 than its bound, whatever follows. */
static bool is_beyond(const struct number_range *r, const struct reading *at)
{
    const struct decimal *bound = at->negative ? &r->low : &r->high;
    if (!(at->negative ? r->has_low : r->has_high))
        return false;
    return bound->negative != at->negative || at->whole > bound->n_whole ||
           (at->whole == bound->n_whole && (at->negative ? at->low : at->high) == GREATER);
}

/* At the point: how many digits came matters only where a fraction may become too long. */
static void forget_whole(const struct number_range *r, struct reading *at)
{
    at->zero_first = 0;
    if (r->step && at->whole + r->step_decimals <= NUMBER_DIGITS_MAX)
        at->whole = 0;
}

/* False: this byte cannot follow. */
static bool read_digit(const struct number_range *r, struct reading *at, unsigned digit)
{
    bool fraction = at->phase == PHASE_POINT || at->phase == PHASE_FRACTION;
    unsigned index = fraction ? at->fraction : at->whole;
    if (fraction ? at->whole + at->fraction >= NUMBER_DIGITS_MAX ||
                       (r->step && at->fraction >= r->step_decimals)
                 : at->zero_first || at->whole >= NUMBER_WHOLE_MAX)
        return false;
    at->zero_first = at->zero_first || (!fraction && index == 0 && digit == 0);
    at->nonzero = at->nonzero || (at->negative && digit != 0);
    if (compares(at, r->has_low, &r->low))
        at->low = compare_digit(at->low, digit, bound_digit(&r->low, fraction, index));
    if (compares(at, r->has_high, &r->high))
        at->high = compare_digit(at->high, digit, bound_digit(&r->high, fraction, index));
    at->residue = (uint32_t)residue_after(at->residue, digit, r->step);
    at->phase = fraction ? PHASE_FRACTION : PHASE_WHOLE;
    at->fraction += fraction;
    at->whole += !fraction;
    return fraction || !is_beyond(r, at);
}

static bool read_byte(const struct number_range *r, struct reading *at, unsigned byte)
{
    if (byte >= '0' && byte <= '9')
        return read_digit(r, at, byte - '0');
    if (byte == '-' && at->phase == PHASE_START) {
        at->phase = PHASE_SIGN;
        at->negative = 1;
        return true;
    }
    if (byte != '.' || at->phase != PHASE_WHOLE || r->integer || at->whole >= NUMBER_DIGITS_MAX)
        return false;
    at->phase = PHASE_POINT;
    if (compares(at, r->has_low, &r->low))
        at->low = whole_order(at, at->low, &r->low);
    if (compares(at, r->has_high, &r->high))
        at->high = whole_order(at, at->high, &r->high);
    forget_whole(r, at);
    return true;
}

static bool construct(struct readings *u)
{
    const struct reading start = {.phase = PHASE_START, .low = EQUAL, .high = EQUAL};
    if (reading_state(u, &start) == DFA_NONE)
        return false;
    for (uint32_t s = 0; s < u->d->n_states; s++) {
        u->d->accepts[s] = reading_accepts(u->r, &u->of_state[s]);
        for (unsigned byte = '-'; byte <= '9'; byte++) {
            struct reading at = u->of_state[s];
            if (!read_byte(u->r, &at, byte))
                continue;
            uint32_t next = reading_state(u, &at);
            if (next == DFA_NONE)
                return false;
            u->d->next[s][byte] = next;
        }
    }
    return true;
}

enum error_code number_range_dfa(const struct number_range *r, struct dfa *out, struct error *e)
{
    struct readings u = {.r = r, .d = out, .mask = 63};
    while (u.mask < out->states_max * (uint64_t)2)
        u.mask = u.mask * 2 + 1;
    u.of_state = malloc((out->states_max + (size_t)1) * sizeof *u.of_state);
    u.table = calloc((size_t)u.mask + 1, sizeof *u.table);
    bool memory = u.of_state && u.table;
    bool done = memory && construct(&u);
    bool limit = out->n_states == out->states_max;
    out->work += out->n_states * (uint64_t)STATE_STEPS;
    free(u.of_state);
    free(u.table);
    if (!done)
        return limit && memory
                   ? error_set(e, ERROR_LIMIT, "needs an automaton of more than %u states",
                               out->states_max)
                   : error_set(e, ERROR_MEMORY, "out of memory for a grammar");
    return dfa_trim(out, e);
}
