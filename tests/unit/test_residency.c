/* The residency table and the expert channel's region: layouts and errors. The table's promise with
 * threads: a reader that finds a segment resident reads that segment's bytes. */
#include "ipc/expert_channel.h"
#include "ipc/residency.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static void test_pack(void **state)
{
    (void)state;
    struct residency r = {.resident = 7, .in_flight = 3, .generation = 0x123456789abcull};
    struct residency back = residency_unpack(residency_pack(r));
    assert_int_equal(back.resident, 7);
    assert_int_equal(back.in_flight, 3);
    assert_true(back.generation == r.generation);
    assert_true(residency_pack((struct residency){1, 0, 0}) == 1);
    assert_true(residency_pack((struct residency){0, 1, 0}) == 256);
}

static void test_attach(void **state)
{
    (void)state;
    size_t bytes = residency_bytes(3, 5, 4);
    assert_int_equal(bytes, 2624 + 15 * 8 + 15 * 4 * 8 + 15 * 4 * 4);
    void *memory = aligned_alloc(64, 3520);
    struct residency_table t;
    struct error e;
    memset(memory, 0, 3520);
    assert_int_equal(residency_attach(&t, memory, bytes, &e), ERROR_PROTOCOL);
    residency_init(memory, 3, 5, 4, 4096, 10, 42);
    assert_int_equal(residency_attach(&t, memory, bytes - 1, &e), ERROR_PROTOCOL);
    assert_int_equal(residency_attach(&t, memory, bytes, &e), ERROR_OK);
    assert_true(t.header->kv_bytes == UINT64_MAX); /* no limit */
    for (uint32_t layer = 0; layer < 3; layer++)
        for (uint32_t expert = 0; expert < 5; expert++)
            assert_int_equal(residency_read(&t, layer, expert).resident, 0);
    assert_int_equal(t.header->word_changes, 0);
    residency_write(&t, 2, 4, 6, 1);
    assert_int_equal(t.header->word_changes, 1);
    assert_int_equal(residency_read(&t, 2, 4).resident, 6);
    assert_int_equal(residency_read(&t, 2, 4).in_flight, 1);
    assert_int_equal(residency_read(&t, 2, 4).generation, 1);
    assert_int_equal(residency_read(&t, 2, 3).resident, 0);
    atomic_store(residency_slot(&t, 2, 4, 3), 9);
    assert_int_equal(*(uint32_t *)((uint8_t *)memory + bytes - 4),
                     9); /* the last word of the table */
    assert_int_equal(residency_n_slots(t.header), 10);
    free(memory);
}

/* A reader finds an announcement while that segment is in flight, not before, not for another
 * segment, and not afterwards. */
static void test_arriving(void **state)
{
    (void)state;
    size_t bytes = residency_bytes(2, 3, 4);
    _Alignas(64) static uint8_t memory[3136];
    struct residency_table t;
    struct residency_arrival a = {7, 7};
    struct error e;
    assert_true(bytes <= sizeof memory);
    residency_init(memory, 2, 3, 4, 4096, 10, 42);
    assert_int_equal(residency_attach(&t, memory, bytes, &e), ERROR_OK);
    residency_write(&t, 1, 2, 3, 0);
    residency_announce(&t, 1, 2, 3, (struct residency_arrival){0xfffffffeu, 0x80000001u});
    assert_false(residency_arriving(&t, 1, 2, 3, &a));
    residency_write(&t, 1, 2, 3, 1);
    assert_false(residency_arriving(&t, 1, 2, 2, &a));
    assert_false(residency_arriving(&t, 1, 1, 0, &a));
    assert_true(a.slot == 7 && a.flag == 7);
    assert_true(residency_arriving(&t, 1, 2, 3, &a));
    assert_true(a.slot == 0xfffffffeu && a.flag == 0x80000001u);
    residency_write(&t, 1, 2, 4, 0);
    assert_false(residency_arriving(&t, 1, 2, 3, &a));
    assert_false(residency_arriving(&t, 1, 2, 4, &a));
    for (uint32_t segment = 0; segment < 3; segment++) { /* several of one expert */
        residency_announce(&t, 0, 1, segment, (struct residency_arrival){10 + segment, segment});
        residency_write(&t, 0, 1, 0, (uint8_t)(segment + 1));
    }
    for (uint32_t arrived = 0; arrived <= 3; arrived++) {
        residency_write(&t, 0, 1, (uint8_t)arrived, (uint8_t)(3 - arrived));
        for (uint32_t segment = 0; segment < 4; segment++) {
            bool arrives = segment >= arrived && segment < 3;
            assert_int_equal(residency_arriving(&t, 0, 1, segment, &a), arrives);
            assert_true(!arrives || (a.slot == 10 + segment && a.flag == segment));
        }
    }
}

/* memd fills a slot and publishes it; workers read it. ThreadSanitizer reports a missing order. */
enum { SLOT = 16, ROUNDS = 250, READERS = 3 };
struct shared {
    struct residency_table table;
    uint32_t slots[ROUNDS + 1][SLOT];
    _Atomic int wrong;
};

static void *reader(void *arg)
{
    struct shared *s = arg;
    for (;;) {
        struct residency r = residency_read(&s->table, 0, 0);
        if (r.resident)
            for (int i = 0; i < SLOT; i++)
                if (s->slots[r.resident][i] != r.resident * 1000u + (uint32_t)i)
                    atomic_fetch_add(&s->wrong, 1);
        if (r.generation >= ROUNDS)
            return NULL;
    }
}

static void test_publishes(void **state)
{
    (void)state;
    static struct shared s;
    void *memory = aligned_alloc(64, 2688);
    struct error e;
    memset(memory, 0, 2688);
    residency_init(memory, 1, 1, 1, 0, 0, 1);
    assert_int_equal(residency_attach(&s.table, memory, 2688, &e), ERROR_OK);
    pthread_t threads[READERS];
    for (int i = 0; i < READERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, reader, &s), 0);
    for (uint32_t n = 1; n <= ROUNDS; n++) {
        for (int i = 0; i < SLOT; i++)
            s.slots[n][i] = n * 1000u + (uint32_t)i;
        residency_write(&s.table, 0, 0, (uint8_t)n, 0);
    }
    for (int i = 0; i < READERS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(s.wrong, 0);
    free(memory);
}

static void test_channel_region(void **state)
{
    (void)state;
    size_t bytes = expert_channel_bytes(32, 4, 8, 64);
    uint8_t *memory = aligned_alloc(64, (bytes + 63) / 64 * 64);
    struct expert_channel c;
    struct error e;
    memset(memory, 0, bytes);
    assert_int_equal(expert_channel_attach(&c, memory, bytes, &e), ERROR_PROTOCOL);
    expert_channel_init(memory, 32, 4, 8, 64, 9);
    assert_int_equal(expert_channel_attach(&c, memory, bytes - 64, &e), ERROR_PROTOCOL);
    assert_int_equal(expert_channel_attach(&c, memory, bytes, &e), ERROR_OK);
    assert_int_equal(c.max_rows, 128);
    assert_true((uint8_t *)(c.out + (size_t)c.max_rows * c.d_model) <= memory + bytes);
    assert_true((uint8_t *)(c.x + (size_t)c.max_tokens * c.d_model) <= (uint8_t *)c.out);
    /* Sizes that a peer could write: attaching never accepts an area outside the region. */
    struct expert_channel_header *h = (struct expert_channel_header *)memory;
    static const uint32_t values[] = {0, 1, 3, 33, 1u << 20, 1u << 31, UINT32_MAX};
    uint32_t *fields[] = {&h->max_tokens, &h->max_tasks, &h->max_rows, &h->d_model};
    for (int f = 0; f < 4; f++)
        for (size_t v = 0; v < sizeof values / sizeof *values; v++) {
            uint32_t saved = *fields[f];
            *fields[f] = values[v];
            struct expert_channel broken;
            if (expert_channel_attach(&broken, memory, bytes, &e) == ERROR_OK)
                assert_true((uint8_t *)(broken.out + (size_t)broken.max_rows * broken.d_model) <=
                            memory + bytes);
            *fields[f] = saved;
        }
    free(memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pack),           cmocka_unit_test(test_attach),
        cmocka_unit_test(test_arriving),       cmocka_unit_test(test_publishes),
        cmocka_unit_test(test_channel_region),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
