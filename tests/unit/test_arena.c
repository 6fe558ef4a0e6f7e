/* ipc/arena_layout.h, worked out by hand, and by walking over all slots; ipc/arena_follow.h, both
 * sides in one thread, so that each step is seen. */
#include "ipc/arena_follow.h"
#include "ipc/arena_layout.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#define MIB (1ull << 20)

static void test_places(void **state)
{
    struct arena_layout l = {.first = 3, .each = 5};
    /* 0 1 2 | 3 4 5 6 7 | 8 9 10 11 12 | 13 */
    static const uint32_t extent[] = {0, 0, 0, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 3};
    for (uint32_t slot = 0; slot < sizeof extent / sizeof *extent; slot++)
        assert_int_equal(arena_extent_of(l, slot), extent[slot]);
    assert_int_equal(arena_extent_begin(l, 0), 0);
    assert_int_equal(arena_extent_begin(l, 1), 3);
    assert_int_equal(arena_extent_begin(l, 3), 13);
    assert_int_equal(arena_extents(l, 1), 1);
    assert_int_equal(arena_extents(l, 3), 1);
    assert_int_equal(arena_extents(l, 4), 2);
    assert_int_equal(arena_extents(l, 13), 3);
    assert_int_equal(arena_extents(l, 14), 4);
    assert_int_equal(arena_extent_slots(l, 0, 1), 3); /* whole, whatever is used of it */
    assert_int_equal(arena_extent_slots(l, 1, 5), 2);
    assert_int_equal(arena_extent_slots(l, 1, 8), 5);
    assert_int_equal(arena_extent_slots(l, 1, 100), 5);
}

static void test_layouts(void **state)
{
    /* shared memory, in bytes: one slot, then 47 / 31 */
    struct arena_layout l = arena_layout_for(4096, 48, 1);
    assert_true(l.first == 1 && l.each == 2);
    assert_int_equal(arena_bytes(l, 4096, 1, 10), 10 * 4096);
    assert_int_equal(arena_slots_in(l, 4096, 1, 10 * 4096 + 5, 48), 10);
    assert_int_equal(arena_slots_in(l, 4096, 1, UINT64_MAX, 48), 48);
    /* 2 MiB units, slots of 1.5 MiB: one slot in the first unit. 999 / 31 gives 33 slots, 49.5 MiB,
     * and 33 slots fit into 50 MiB. */
    l = arena_layout_for(3 * MIB / 2, 1000, 2 * MIB);
    assert_true(l.first == 1 && l.each == 33);
    assert_int_equal(arena_bytes(l, 3 * MIB / 2, 2 * MIB, 1), 2 * MIB);
    assert_int_equal(arena_bytes(l, 3 * MIB / 2, 2 * MIB, 2), 4 * MIB);
    assert_int_equal(arena_bytes(l, 3 * MIB / 2, 2 * MIB, 34), 52 * MIB);
    assert_int_equal(arena_bytes(l, 3 * MIB / 2, 2 * MIB, 36), 56 * MIB);
    assert_int_equal(arena_slots_in(l, 3 * MIB / 2, 2 * MIB, 2 * MIB - 1, 1000), 0);
    assert_int_equal(arena_slots_in(l, 3 * MIB / 2, 2 * MIB, 56 * MIB - 1, 1000), 35);
    assert_int_equal(arena_slots_in(l, 3 * MIB / 2, 2 * MIB, 56 * MIB, 1000), 36);
    /* a model that fits into a unit has one extent */
    l = arena_layout_for(1024, 16, 2 * MIB);
    assert_int_equal(l.first, 16);
    assert_int_equal(arena_bytes(l, 1024, 2 * MIB, 3), 2 * MIB);
    /* an extent has at least four units */
    l = arena_layout_for(MIB, 100, 2 * MIB);
    assert_true(l.first == 2 && l.each == 8);
}

/* For all sizes: at most ARENA_EXTENTS extents, every slot in one, and arena_slots_in inverts
 * arena_bytes. */
static void test_all_layouts(void **state)
{
    static const uint64_t sizes[] = {64, 4096, 442368, MIB, 3 * MIB / 2, 2 * MIB + 64, 7 * MIB};
    static const uint32_t totals[] = {1, 2, 31, 32, 33, 100, 6144, 100000};
    for (uint64_t unit = 1; unit <= 2 * MIB; unit *= 2 * MIB)
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
            for (size_t t = 0; t < sizeof totals / sizeof *totals; t++) {
                uint32_t total = totals[t];
                struct arena_layout l = arena_layout_for(sizes[s], total, unit);
                assert_true(l.first >= 1 && l.each >= 1 && l.first <= total);
                assert_true(arena_extents(l, total) <= ARENA_EXTENTS);
                for (uint32_t n = 1; n <= total; n += 1 + total / 500) {
                    uint64_t sum = 0;
                    uint32_t slots = 0;
                    for (uint32_t p = 0; p < arena_extents(l, n); p++) {
                        assert_int_equal(arena_extent_begin(l, p), slots);
                        assert_int_equal(arena_extent_of(l, slots), p);
                        slots += arena_extent_slots(l, p, n);
                        assert_int_equal(arena_extent_of(l, slots - 1), p);
                        uint64_t bytes = arena_extent_slots(l, p, n) * sizes[s];
                        sum += (bytes + unit - 1) / unit * unit;
                    }
                    assert_int_equal(slots, n < l.first ? l.first : n);
                    assert_true(arena_bytes(l, sizes[s], unit, n) == sum);
                    assert_true(arena_slots_in(l, sizes[s], unit, sum, total) >= n);
                    if (n > l.first)
                        assert_true(arena_slots_in(l, sizes[s], unit, sum - 1, total) < n);
                }
            }
}

/* ---- Following ---- */

struct worker {
    struct cache_channel_header channel;
    struct arena_follower follower;
    uint32_t imported[ARENA_EXTENTS]; /* the first byte of the handle */
    int fails_on;                     /* the extent that cannot be imported; 0: none */
    int imports, closes;
};

static enum error_code import(void *arg, uint32_t extent, const struct residency_extent *what,
                              struct error *e)
{
    struct worker *w = arg;
    assert_int_equal(w->imported[extent], 0);
    if ((int)extent == w->fails_on)
        return error_set(e, ERROR_MEMORY, "extent %u", extent);
    w->imported[extent] = what->handle[0];
    w->imports++;
    return ERROR_OK;
}

static void close_extent(void *arg, uint32_t extent)
{
    struct worker *w = arg;
    assert_int_not_equal(w->imported[extent], 0);
    w->imported[extent] = 0;
    w->closes++;
}

static void show(struct residency_header *h, uint32_t extent, uint32_t serial, uint8_t handle)
{
    h->extents[extent].handle[0] = handle;
    atomic_store(&h->extents[extent].serial, serial);
    h->changes++;
}

static void test_follow(void **state)
{
    static struct residency_header h;
    static struct worker w = {.fails_on = -1};
    struct error e;
    w.follower = (struct arena_follower){
        .header = &h, .channel = &w.channel, .arg = &w, .import = import, .close = close_extent};
    show(&h, 0, 1, 'a'); /* the first is the lease's */
    show(&h, 1, 2, 'b');
    assert_true(arena_changed(&w.follower));
    assert_int_equal(arena_follow(&w.follower, &e), ERROR_OK);
    assert_false(arena_changed(&w.follower));
    assert_true(w.imported[0] == 0 && w.imported[1] == 'b' && w.channel.arena_seen == 2);
    /* gone, and another one in its place, which is seen at once */
    show(&h, 1, 0, 'b');
    show(&h, 1, 3, 'c');
    assert_true(arena_changed(&w.follower));
    assert_int_equal(arena_follow(&w.follower, &e), ERROR_OK);
    assert_true(w.imported[1] == 'c' && w.closes == 1 && w.channel.arena_seen == 4);
    /* one of two cannot be imported: the other is; the error is returned, and not tried again */
    w.fails_on = 2;
    show(&h, 2, 4, 'd');
    show(&h, 3, 5, 'e');
    assert_int_equal(arena_follow(&w.follower, &e), ERROR_MEMORY);
    assert_string_equal(e.text, "extent 2");
    assert_true(w.imported[2] == 0 && w.imported[3] == 'e');
    assert_true(w.channel.arena_seen == 4 && w.channel.arena_refused == 6);
    assert_false(arena_changed(&w.follower));
    /* memd takes both back */
    show(&h, 2, 0, 0);
    show(&h, 3, 0, 0);
    assert_int_equal(arena_follow(&w.follower, &e), ERROR_OK);
    assert_true(w.imported[3] == 0 && w.channel.arena_seen == 8 && w.closes == 2);
    arena_forget(&w.follower);
    assert_true(w.imports == 3 && w.closes == 3 && w.imported[1] == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_places),
        cmocka_unit_test(test_layouts),
        cmocka_unit_test(test_all_layouts),
        cmocka_unit_test(test_follow),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
