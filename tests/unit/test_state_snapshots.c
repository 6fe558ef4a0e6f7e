/* Snapshots of states: the longest that fits, kinds of prompts, and which one goes first. */
#include "worker/kv/state_snapshots.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <string.h>

enum { COUNT = 3, CONTEXT = 1000, STATE = 100 };

static uint32_t tokens[CONTEXT];

static struct state_snapshots *make(bool exact)
{
    struct state_snapshots_options options = {COUNT, CONTEXT, STATE, exact};
    struct state_snapshots *s;
    struct error e;
    assert_int_equal(state_snapshots_new(&options, &s, &e), ERROR_OK);
    for (uint32_t i = 0; i < CONTEXT; i++)
        tokens[i] = i;
    return s;
}

/* The state is filled with `mark`. False: it is there already. */
static bool put(struct state_snapshots *s, uint32_t n, uint32_t n_prompt, int mark)
{
    struct state_snapshot *to = state_snapshots_reserve(s, tokens, n, n_prompt);
    if (!to)
        return false;
    memset(to->state, mark, STATE);
    state_snapshots_keep(s, to);
    return true;
}

static uint32_t position(struct state_snapshots *s, uint32_t n, uint32_t n_prompt, int mark)
{
    const struct state_snapshot *found = state_snapshots_find(s, tokens, n, n_prompt);
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

static void test_least_recently_used_goes(void **state)
{
    struct state_snapshots *s = make(true);
    (void)state;
    for (uint32_t i = 1; i <= COUNT; i++)
        assert_true(put(s, 10 * i, 70, (int)i));
    assert_int_equal(position(s, 10, 70, 1), 10);
    assert_true(put(s, 40, 70, 4)); /* in place of 20 */
    assert_int_equal(position(s, 29, 70, 1), 10);
    assert_int_equal(position(s, 39, 70, 3), 30);
    /* one that is not kept is lost, and is the next to be used */
    struct state_snapshot *dropped = state_snapshots_reserve(s, tokens, 50, 70);
    assert_non_null(dropped);
    assert_int_equal(position(s, 60, 70, 3), 30);
    state_snapshots_drop(s, dropped);
    assert_int_equal(position(s, 60, 70, 3), 30);
    assert_true(put(s, 60, 70, 6));
    assert_int_equal(position(s, 59, 70, 3), 30);
    assert_int_equal(position(s, 60, 70, 6), 60);
    assert_null(state_snapshots_reserve(s, tokens, CONTEXT + 1, 70));
    /* what is reserved is nobody else's, and stays when all are cleared */
    struct state_snapshot *reserved[COUNT];
    for (uint32_t i = 0; i < COUNT; i++)
        assert_non_null(reserved[i] = state_snapshots_reserve(s, tokens, 100 + i, 70));
    assert_null(state_snapshots_reserve(s, tokens, 200, 70));
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_longest),
        cmocka_unit_test(test_least_recently_used_goes),
        cmocka_unit_test(test_kinds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
