/* The list of a conversation's messages: turns that are dropped. */
#include "client/cli/chat/messages.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

/* A message for each letter: s, u, a. */
static json_t *messages_of(const char *letters)
{
    json_t *list = json_array();
    for (const char *c = letters; *c; c++)
        assert_true(messages_add(list,
                                 *c == 's'   ? "system"
                                 : *c == 'u' ? "user"
                                             : "assistant",
                                 c, 1));
    return list;
}

static void expect(json_t *list, const char *letters)
{
    assert_int_equal(json_array_size(list), strlen(letters));
    for (size_t i = 0; letters[i]; i++) {
        const char *role = json_string_value(json_object_get(json_array_get(list, i), "role"));
        assert_int_equal(role[0], letters[i]);
    }
    json_decref(list);
}

static void oldest_turns(void **state)
{
    static const struct {
        const char *before;
        size_t n, dropped;
        const char *after;
    } cases[] = {
        {"suauaua", 1, 1, "suaua"}, {"suauaua", 2, 2, "sua"}, {"suauaua", 9, 3, "s"},
        {"uaua", 1, 1, "ua"},       {"auaua", 1, 1, "ua"},    {"suaau", 1, 1, "su"},
        {"s", 1, 0, "s"},           {"", 1, 0, ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        json_t *list = messages_of(cases[i].before);
        assert_int_equal(messages_drop_oldest_turns(list, cases[i].n), cases[i].dropped);
        expect(list, cases[i].after);
    }
}

static void last_turn(void **state)
{
    json_t *list = messages_of("suaua");
    assert_int_equal(messages_drop_last_turn(list), 1);
    assert_int_equal(messages_drop_last_turn(list), 1);
    assert_int_equal(messages_drop_last_turn(list), 0);
    expect(list, "s");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(oldest_turns),
        cmocka_unit_test(last_turn),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
