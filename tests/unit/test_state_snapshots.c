/* Snapshots of states: the longest that fits, kinds of prompts, and which one goes. */
#include "worker/kv/state_snapshots.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <string.h>

enum { COUNT = 3, CONTEXT = 1000, STATE = 100 };

static uint32_t tokens[CONTEXT];

static struct state_snapshot *reserve(struct state_snapshots *s, uint32_t n, uint32_t n_prompt,
                                      uint64_t salt)
{
    const struct kv_prefix prefix = {tokens, n, n_prompt, salt};
    return state_snapshots_reserve(s, &prefix, false);
}

static uint32_t longest(struct state_snapshots *s, uint32_t n, uint32_t n_prompt, uint64_t salt)
{
    const struct kv_prefix prefix = {tokens, n, n_prompt, salt};
    return state_snapshots_longest(s, &prefix);
}

static struct state_snapshots *make_of(uint32_t count, bool exact)
{
    struct state_snapshots_options options = {count, CONTEXT, STATE, exact};
    struct state_snapshots *s;
    struct error e;
    assert_int_equal(state_snapshots_new(&options, &s, &e), ERROR_OK);
    for (uint32_t i = 0; i < CONTEXT; i++)
        tokens[i] = i;
    return s;
}

static struct state_snapshots *make(bool exact)
{
    return make_of(COUNT, exact);
}

/* The state is filled with `mark`. False: it is there already. */
static bool put(struct state_snapshots *s, uint32_t n, uint32_t n_prompt, int mark)
{
    struct state_snapshot *to = reserve(s, n, n_prompt, 0);
    if (!to)
        return false;
    memset(to->state, mark, STATE);
    state_snapshots_keep(s, to);
    return true;
}

static uint32_t position(struct state_snapshots *s, uint32_t n, uint32_t n_prompt, int mark)
{
    const struct kv_prefix prefix = {tokens, n, n_prompt, 0};
    const struct state_snapshot *found = state_snapshots_find(s, &prefix, false);
    if (!found)
        return 0;
    for (int i = 0; i < STATE; i++)
        assert_int_equal(found->state[i], mark);
    return found->position;
}

static void test_longest(void **state)
{
    struct state_snapshots *s = make(true);
    (void)state;
    assert_int_equal(position(s, CONTEXT, CONTEXT, 0), 0);
    assert_true(put(s, 64, 70, 1));
    assert_true(put(s, 100, 70, 2));
    assert_false(put(s, 100, 80, 3));
    assert_int_equal(position(s, 63, 90, 0), 0);
    assert_int_equal(position(s, 64, 90, 1), 64);
    assert_int_equal(position(s, 99, 90, 1), 64);
    assert_int_equal(position(s, 200, 90, 2), 100);
    tokens[99]++;
    assert_int_equal(position(s, 200, 90, 1), 64);
    tokens[0]++;
    assert_int_equal(position(s, 200, 90, 0), 0);
    tokens[0]--;
    state_snapshots_clear(s);
    assert_int_equal(position(s, 200, 90, 0), 0);
    state_snapshots_free(s);
}

/* A snapshot is there for prefixes of its own salt, and begins no other salt's. */
static void test_salts(void **state)
{
    struct state_snapshots *s = make(true);
    (void)state;
    for (uint64_t salt = 2; salt > 0; salt--) {
        struct state_snapshot *to = reserve(s, 100, 70, salt);
        assert_non_null(to); /* although the other salt has it */
        state_snapshots_keep(s, to);
        assert_null(reserve(s, 100, 70, salt));
        assert_int_equal(longest(s, 200, 70, salt), 100);
        assert_int_equal(longest(s, 200, 70, 3), 0);
        assert_int_equal(position(s, 200, 70, 0), 0);
    }
    state_snapshots_keep(s, reserve(s, 140, 70, 1));
    state_snapshots_keep(s, reserve(s, 60, 70, 3)); /* in place of salt 1's first one */
    assert_int_equal(longest(s, 120, 70, 2), 100);
    state_snapshots_free(s);
}

/* The next one takes the place of the one whose loss costs least. */
static void test_cheapest_goes(void **state)
{
    struct state_snapshots *s = make(true);
    (void)state;
    assert_true(put(s, 400, 70, 1));
    assert_true(put(s, 440, 70, 2));
    assert_true(put(s, 900, 70, 3));
    assert_true(put(s, 950, 70, 4)); /* in place of 440 */
    assert_int_equal(position(s, 449, 70, 1), 400);
    assert_int_equal(position(s, 900, 70, 3), 900);
    state_snapshots_clear(s);
    /* the end of a conversation counts for more than a place inside */
    assert_true(put(s, 300, 70, 1));
    assert_true(put(s, 620, 70, 2));
    assert_true(put(s, 720, 70, 3));
    assert_true(put(s, 800, 70, 4)); /* in place of 300, although 720 costs 100 */
    assert_int_equal(position(s, 619, 70, 0), 0);
    assert_int_equal(position(s, 799, 70, 3), 720);
    state_snapshots_free(s);
}

/* The beginning of several conversations counts for each of them. */
static void test_common_beginning(void **state)
{
    enum { BEGIN = 60, END = 80 };
    struct state_snapshots *s = make_of(COUNT + 1, true);
    (void)state;
    assert_true(put(s, BEGIN, 70, 1));
    for (uint32_t i = 0; i < 2 * COUNT; i++) {
        tokens[BEGIN] = CONTEXT + i;
        assert_true(put(s, END, 70, 2)); /* in place of an end, whose loss costs 4 * 20 */
    }
    tokens[BEGIN] = 0;
    assert_int_equal(longest(s, CONTEXT, 70, 0), BEGIN);
    state_snapshots_free(s);
}

/* Of equal ones the one that is least recently used. Of an empty place nothing is lost. */
static void test_equal_ones(void **state)
{
    struct state_snapshots *s = make(true);
    (void)state;
    for (uint32_t i = 1; i <= COUNT; i++)
        assert_true(put(s, 10 * i, 70, (int)i));
    assert_int_equal(position(s, 10, 70, 1), 10);
    assert_true(put(s, 40, 70, 4)); /* in place of 20 */
    assert_int_equal(position(s, 29, 70, 1), 10);
    assert_int_equal(position(s, 39, 70, 3), 30);
    struct state_snapshot *dropped = reserve(s, 50, 70, 0);
    assert_non_null(dropped);
    state_snapshots_drop(s, dropped);
    assert_int_equal(position(s, 39, 70, 3), 30);
    assert_true(put(s, 60, 70, 6));
    assert_int_equal(position(s, 39, 70, 3), 30);
    assert_int_equal(position(s, 59, 70, 4), 40);
    assert_int_equal(position(s, 60, 70, 6), 60);
    assert_null(reserve(s, CONTEXT + 1, 70, 0));
    state_snapshots_free(s);
}

/* Many steps of another conversation leave the long beginning of one that rests, but not for ever.
 */
static void test_one_that_rests(void **state)
{
    enum { LONG = 500, OTHER = 5000, STEP = 10 };
    struct state_snapshots *s = make_of(3 * COUNT, true);
    (void)state;
    assert_true(put(s, LONG, 70, 1));
    tokens[0] = OTHER;
    for (uint32_t n = STEP; n < CONTEXT / 2; n += STEP)
        assert_true(put(s, n, 70, 2));
    tokens[0] = 0;
    assert_int_equal(longest(s, CONTEXT, 70, 0), LONG);
    for (uint32_t i = 1; longest(s, CONTEXT, 70, 0); i++) {
        assert_true(i < CONTEXT);
        tokens[0] = OTHER + i;
        assert_true(put(s, STEP, 70, 3));
        tokens[0] = 0;
    }
    state_snapshots_free(s);
}

/* Of a passing request, which leaves what conversations have. */
static void put_passing(struct state_snapshots *s, uint32_t first, uint32_t n)
{
    tokens[0] = first;
    const struct kv_prefix prefix = {tokens, n, 70, 0};
    struct state_snapshot *to = state_snapshots_reserve(s, &prefix, true);
    assert_non_null(to);
    state_snapshots_keep(s, to);
    tokens[0] = 0;
}

/* The snapshots of passing requests go first, until a conversation has found them. */
static void test_passing(void **state)
{
    enum { OTHER = 5000, MANY = 20 };
    struct state_snapshots *s = make(true);
    (void)state;
    assert_true(put(s, 100, 70, 1));
    assert_true(put(s, 110, 70, 2));
    for (uint32_t i = 0; i < MANY; i++)
        put_passing(s, OTHER + i, CONTEXT);
    put_passing(s, 0, 105); /* 110 is worth what it was, and 100 */
    assert_int_equal(longest(s, 109, 70, 0), 105);
    put_passing(s, OTHER + MANY - 1, CONTEXT);
    assert_int_equal(longest(s, 200, 70, 0), 110);
    assert_int_equal(position(s, 109, 70, 1), 100);
    const struct kv_prefix prefix = {tokens, CONTEXT, 70, 0};
    tokens[0] = OTHER + MANY - 1;
    assert_non_null(state_snapshots_find(s, &prefix, true)); /* by another passing one */
    put_passing(s, OTHER + MANY, CONTEXT);
    tokens[0] = OTHER + MANY;
    assert_non_null(state_snapshots_find(s, &prefix, false));
    put_passing(s, OTHER, CONTEXT); /* in place of 110, whose loss costs less */
    tokens[0] = OTHER + MANY;
    assert_int_equal(longest(s, CONTEXT, 70, 0), CONTEXT);
    tokens[0] = 0;
    assert_int_equal(longest(s, 200, 70, 0), 100);
    state_snapshots_free(s);
}

/* What is reserved is nobody else's, and stays when all are cleared. */
static void test_reserved(void **state)
{
    struct state_snapshots *s = make(true);
    struct state_snapshot *reserved[COUNT];
    (void)state;
    for (uint32_t i = 0; i < COUNT; i++)
        assert_non_null(reserved[i] = reserve(s, 100 + i, 70, 0));
    assert_null(reserve(s, 200, 70, 0));
    state_snapshots_clear(s);
    memset(reserved[1]->state, 7, STATE);
    state_snapshots_keep(s, reserved[1]);
    assert_int_equal(position(s, 200, 70, 7), 101);
    state_snapshots_free(s);
}

/* A prompt of 300 has a large group of 256 positions, one of 200 three small ones. */
static void test_kinds(void **state)
{
    struct state_snapshots *s = make(false);
    (void)state;
    assert_true(put(s, 128, 200, 1));
    assert_int_equal(position(s, 200, 300, 0), 0);
    assert_int_equal(position(s, 200, 250, 1), 128);
    assert_int_equal(position(s, 200, 140, 1), 128);
    assert_int_equal(position(s, 200, 100, 0), 0); /* from 64 on by the definition */
    assert_true(put(s, 256, 300, 2));
    assert_int_equal(position(s, 400, 319, 2), 256);
    assert_int_equal(position(s, 400, 500, 2), 256);
    assert_true(put(s, 310, 300, 3));
    assert_int_equal(position(s, 400, 319, 3), 310);
    assert_int_equal(position(s, 400, 320, 2), 256);
    state_snapshots_free(s);
}

/* ---- Many conversations that begin alike ---- */

/* A prefix whose tokens differ from `tokens` from position `differs` on. */
struct branch {
    uint32_t differs, branch, n, n_prompt;
};

static void take_branch(const struct branch *b)
{
    for (uint32_t i = 0; i < CONTEXT; i++)
        tokens[i] = i < b->differs ? i : i + b->branch * CONTEXT;
}

static uint32_t random_below(uint32_t n)
{
    static uint32_t x = 1;
    x = x * 1664525 + 1013904223;
    return (x >> 8) % n;
}

static struct branch random_branch(void)
{
    uint32_t branch = random_below(3);
    return (struct branch){branch ? 100 * random_below(10) : CONTEXT, branch,
                           1 + random_below(CONTEXT), 1 + random_below(CONTEXT)};
}

static bool is_beginning_of(const struct branch *a, const struct branch *b)
{
    uint32_t alike = a->differs < b->differs ? a->differs : b->differs;
    if (a->branch == b->branch && a->differs == b->differs)
        alike = CONTEXT;
    return a->n <= b->n && a->n <= alike &&
           kv_same_kinds(a->n, a->n_prompt, b->n_prompt, false) == a->n;
}

/* Against the definition; some are reserved twice before they are kept. */
static void test_random(void **state)
{
    enum { KEPT = 100 };
    static struct branch kept[KEPT];
    struct state_snapshots *s = make_of(2 * KEPT, false);
    (void)state;
    for (uint32_t n = 0; n < KEPT; n++) {
        struct state_snapshot *to[2];
        kept[n] = random_branch();
        take_branch(&kept[n]);
        for (int i = 0; i < 2; i++)
            to[i] = reserve(s, kept[n].n, kept[n].n_prompt, 0);
        for (int i = 0; i < 2; i++)
            if (to[i])
                state_snapshots_keep(s, to[i]);
        for (int i = 0; i < 20; i++) {
            struct branch b = random_branch();
            uint32_t most = 0;
            for (uint32_t k = 0; k <= n; k++)
                if (is_beginning_of(&kept[k], &b) && kept[k].n > most)
                    most = kept[k].n;
            take_branch(&b);
            assert_int_equal(longest(s, b.n, b.n_prompt, 0), most);
            const struct kv_prefix prefix = {tokens, b.n, b.n_prompt, 0};
            const struct state_snapshot *found = state_snapshots_find(s, &prefix, false);
            assert_int_equal(found ? found->position : 0, most);
        }
    }
    state_snapshots_free(s);
}

/* Counts what is compared. Visible: with a sanitizer the linker takes its library to refer to it.
 */
__attribute__((visibility("default"))) int __wrap_memcmp(const void *a, const void *b, size_t n);
int __real_memcmp(const void *a, const void *b, size_t n);
static size_t compared; /* bytes */

int __wrap_memcmp(const void *a, const void *b, size_t n)
{
    compared += n;
    return __real_memcmp(a, b, n);
}

/* With many snapshots of one long conversation a look-up compares its tokens once, and so does to
 * keep another one. */
static void test_comparisons(void **state)
{
    enum { MANY = 256, TOKENS = MANY * 256 };
    static uint32_t all[TOKENS];
    struct state_snapshots_options options = {MANY, TOKENS, STATE, true};
    struct kv_prefix prefix = {all, 0, 70, 0};
    struct state_snapshots *s;
    struct error e;
    (void)state;
    assert_int_equal(state_snapshots_new(&options, &s, &e), ERROR_OK);
    for (int i = 0; i < MANY; i++) {
        prefix.n = TOKENS / MANY * (i + 1u);
        struct state_snapshot *to = state_snapshots_reserve(s, &prefix, false);
        compared = 0;
        state_snapshots_keep(s, to);
        assert_in_range(compared, i ? sizeof *all : 0, 2 * sizeof all);
    }
    compared = 0;
    assert_int_equal(state_snapshots_longest(s, &prefix), TOKENS);
    assert_in_range(compared, sizeof all, 2 * sizeof all);
    state_snapshots_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_longest),
        cmocka_unit_test(test_cheapest_goes),
        cmocka_unit_test(test_equal_ones),
        cmocka_unit_test(test_one_that_rests),
        cmocka_unit_test(test_reserved),
        cmocka_unit_test(test_kinds),
        cmocka_unit_test(test_salts),
        cmocka_unit_test(test_passing),
        cmocka_unit_test(test_common_beginning),
        cmocka_unit_test(test_random),
        cmocka_unit_test(test_comparisons),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
