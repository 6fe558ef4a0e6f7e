/* The place map: where memd says that each expert is, and what has changed since a version. */
#include "memd/place_map.h"

#include "memory.pb-c.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

enum { LAYERS = 4, EXPERTS = 5, SEGMENTS = 3, SLOTS = 6, SLOT_BYTES = 4096 };

/* Layer 0 has no routed experts. */
static const struct pool_slabs slabs[LAYERS] = {
    {0},
    {.n_experts = EXPERTS, .n_segments = SEGMENTS},
    {.n_experts = EXPERTS, .n_segments = 1},
    {.n_experts = EXPERTS, .n_segments = SEGMENTS},
};

struct machine {
    void *residency_memory, *tier_memory;
    struct residency_table residency;
    struct host_tier tier;
    struct place_map *map;
};

static void machine_init(struct machine *m, bool has_tier)
{
    struct error e;
    size_t bytes = (residency_bytes(LAYERS, EXPERTS, SEGMENTS) + 63) / 64 * 64;
    m->residency_memory = aligned_alloc(64, bytes);
    memset(m->residency_memory, 0, bytes);
    residency_init(m->residency_memory, LAYERS, EXPERTS, SEGMENTS, SLOT_BYTES, 10, 42);
    assert_int_equal(residency_attach(&m->residency, m->residency_memory, bytes, &e), ERROR_OK);
    bytes = host_tier_bytes(LAYERS, EXPERTS, SLOT_BYTES, SLOTS);
    m->tier_memory = aligned_alloc(4096, bytes);
    memset(m->tier_memory, 0, bytes);
    host_tier_init(m->tier_memory, LAYERS, EXPERTS, SLOT_BYTES, SLOTS, 42);
    assert_int_equal(host_tier_attach(&m->tier, m->tier_memory, bytes, &e), ERROR_OK);
    const struct place_map_sources sources = {.slabs = slabs,
                                              .n_layers = LAYERS,
                                              .n_experts = EXPERTS,
                                              .residency = &m->residency,
                                              .n_devices = 1,
                                              .tier = has_tier ? &m->tier : NULL};
    assert_int_equal(place_map_new(&sources, &m->map, &e), ERROR_OK);
}

static void machine_fini(struct machine *m)
{
    place_map_free(m->map);
    free(m->residency_memory);
    free(m->tier_memory);
}

static void test_places(void **state)
{
    (void)state;
    struct machine m;
    machine_init(&m, true);
    assert_int_equal(m.map->n_rows, 3);
    assert_int_equal(m.map->n_cells, 15);
    assert_int_equal(m.map->layers[0], 1);
    assert_int_equal(m.map->layers[2], 3);
    residency_write(&m.residency, 1, 0, 3, 0); /* all segments */
    residency_write(&m.residency, 1, 1, 2, 0);
    residency_write(&m.residency, 1, 2, 0, 1);
    residency_write(&m.residency, 1, 3, 2, 1);
    residency_write(&m.residency, 2, 4, 1, 0); /* an expert of one segment */
    atomic_store(host_tier_word(&m.tier, 3, 1),
                 host_expert_pack((struct host_expert){.slot_and_one = SLOTS}));
    atomic_store(host_tier_word(&m.tier, 3, 2),
                 host_expert_pack((struct host_expert){.slot_and_one = SLOTS + 1})); /* no slot */
    atomic_store(host_tier_word(&m.tier, 3, 3),
                 host_expert_pack((struct host_expert){.failures = 2}));
    place_map_update(m.map);
    static const uint8_t expected[15] = {4, 3, 2, 2, 0, 0, 0, 0, 0, 4, 0, 1, 0, 0, 0};
    assert_memory_equal(m.map->places, expected, sizeof expected);
    machine_fini(&m);
}

static void test_no_tier(void **state)
{
    (void)state;
    struct machine m;
    machine_init(&m, false);
    place_map_update(m.map);
    for (uint32_t i = 0; i < m.map->n_cells; i++)
        assert_int_equal(m.map->places[i], MOED__V1__EXPERT_PLACE__IN_HOST_MEMORY);
    machine_fini(&m);
}

static void test_changes(void **state)
{
    (void)state;
    struct machine m;
    machine_init(&m, false);
    place_map_update(m.map);
    uint64_t first = m.map->version;
    assert_int_equal(place_map_changes_since(m.map, 0), 15); /* for a requester without a map */
    place_map_update(m.map);
    assert_true(m.map->version == first); /* nothing has changed */
    assert_int_equal(place_map_changes_since(m.map, first), 0);
    residency_write(&m.residency, 2, 1, 1, 0);
    place_map_update(m.map);
    uint64_t second = m.map->version;
    assert_true(second > first);
    assert_int_equal(place_map_changes_since(m.map, first), 1);
    assert_int_equal(m.map->changes[0], 8 * (EXPERTS + 1) + 4);
    residency_write(&m.residency, 2, 1, 0, 0); /* and back */
    residency_write(&m.residency, 3, 0, 1, 0);
    place_map_update(m.map);
    /* One that has the first map gets the last place of each, one that has the second the rest. */
    assert_int_equal(place_map_changes_since(m.map, first), 2);
    assert_int_equal(m.map->changes[0], 8 * (EXPERTS + 1) + 1);
    assert_int_equal(m.map->changes[1], 8 * 2 * EXPERTS + 3);
    assert_int_equal(place_map_changes_since(m.map, second), 2);
    assert_int_equal(place_map_changes_since(m.map, m.map->version), 0);
    machine_fini(&m);
}

/* Requesters that look at different times all end with the same map. */
static void test_random_requesters(void **state)
{
    (void)state;
    enum { REQUESTERS = 3, ROUNDS = 2000 };
    struct machine m;
    uint8_t theirs[REQUESTERS][15];
    uint64_t versions[REQUESTERS] = {0};
    machine_init(&m, true);
    srand(7);
    for (int round = 0; round < ROUNDS; round++) {
        uint32_t layer = 1 + (uint32_t)rand() % 3, expert = (uint32_t)rand() % EXPERTS;
        uint8_t most = (uint8_t)slabs[layer].n_segments, resident = (uint8_t)(rand() % (most + 1));
        residency_write(&m.residency, layer, expert, resident,
                        resident < most ? (uint8_t)(rand() % 2) : 0);
        atomic_store(
            host_tier_word(&m.tier, layer, expert),
            host_expert_pack((struct host_expert){.slot_and_one = (uint32_t)rand() % (SLOTS + 1)}));
        int who = rand() % REQUESTERS;
        place_map_update(m.map);
        uint32_t n = place_map_changes_since(m.map, versions[who]);
        for (uint32_t i = 0; i < n; i++)
            theirs[who][m.map->changes[i] / 8] = m.map->changes[i] % 8;
        versions[who] = m.map->version;
        assert_memory_equal(theirs[who], m.map->places, sizeof theirs[who]);
    }
    machine_fini(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_places),
        cmocka_unit_test(test_no_tier),
        cmocka_unit_test(test_changes),
        cmocka_unit_test(test_random_requesters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
