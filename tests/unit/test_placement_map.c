/* The placement map as a client writes it: whole, and what a fetch has changed. */
#include "client/state/placement_map.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

static void test_json(void **state)
{
    (void)state;
    uint32_t layers[] = {1, 3};
    uint8_t cells[6][4] = {{4, 1, 0, 255}, {0, 255, 8, 0}, {0, 1, 0, 0},
                           {4, 1, 0, 255}, {0, 247, 8, 0}, {0, 1, 0, 1}};
    struct placement_map m = {.step = 12,
                              .step_before = 11,
                              .model = "de\"mo",
                              .n_layers = 2,
                              .experts = 2,
                              .experts_used = 1,
                              .n_cells = 4,
                              .layers = layers,
                              .now = {cells[0], cells[1], cells[2]},
                              .before = {cells[3], cells[4], cells[5]}};
    struct strbuf out;
    strbuf_init(&out);
    placement_map_json(&m, "default", &out);
    assert_string_equal(
        out.data, "{\"model\":\"de\\\"mo\",\"policy\":null,\"layers\":[1,3],\"experts\":2,"
                  "\"experts_used\":1,\"step\":12,\"place\":\"BAEA/w==\",\"use\":\"AP8IAA==\","
                  "\"chosen\":\"AAEAAA==\"}");
    strbuf_clear(&out);
    assert_true(placement_map_change_json(&m, &out));
    assert_string_equal(out.data, "{\"step\":12,\"cells\":[[1,1,255,1],[3,255,0,0]]}");
    strbuf_clear(&out);
    memcpy(cells + 3, cells, 12);
    assert_true(placement_map_change_json(&m, &out)); /* a step that chose the same */
    assert_string_equal(out.data, "{\"step\":12,\"cells\":[]}");
    strbuf_clear(&out);
    m.step_before = 12;
    assert_false(placement_map_change_json(&m, &out));
    assert_int_equal(out.len, 0);
    m.step = 0;
    snprintf(m.policy, sizeof m.policy, "lru");
    placement_map_json(&m, "mine", &out);
    assert_non_null(strstr(out.data, "\"model\":\"mine\",\"policy\":\"lru\","));
    assert_non_null(strstr(out.data, "\"step\":null"));
    strbuf_fini(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_json),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
