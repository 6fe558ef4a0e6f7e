/* lib/base/spsc: order, the number of free places, and two threads. */
#include "base/spsc.h"

#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

enum { PLACES = 5, MESSAGES = 300000 }; /* 5 places: not a power of two */

/* Every sequence of pushes and pops, against a count. */
static void test_alone(void **state)
{
    for (uint32_t moves = 0; moves < 1u << 16; moves++) {
        struct spsc q = {0};
        uint64_t pushed = 0, popped = 0, place;
        for (int i = 0; i < 16; i++) {
            assert_int_equal(spsc_free(&q, PLACES, &place), PLACES - (pushed - popped));
            assert_int_equal(place, pushed % PLACES);
            assert_int_equal(spsc_first(&q, PLACES, &place), pushed > popped);
            assert_int_equal(place, popped % PLACES);
            if (moves >> i & 1 && pushed - popped < PLACES) {
                spsc_push(&q);
                pushed++;
            } else if (!(moves >> i & 1) && pushed > popped) {
                spsc_pop(&q);
                popped++;
            }
        }
    }
}

struct pair {
    struct spsc q;
    uint64_t places[PLACES][2]; /* a message is written in two steps */
};

static void *producer_main(void *arg)
{
    struct pair *p = arg;
    for (uint64_t i = 0; i < MESSAGES;) {
        uint64_t place;
        if (!spsc_free(&p->q, PLACES, &place)) {
            sched_yield();
            continue;
        }
        p->places[place][0] = i;
        p->places[place][1] = ~i;
        spsc_push(&p->q);
        i++;
    }
    return NULL;
}

static void test_two_threads(void **state)
{
    static struct pair p;
    pthread_t producer;
    assert_int_equal(pthread_create(&producer, NULL, producer_main, &p), 0);
    for (uint64_t i = 0; i < MESSAGES;) {
        uint64_t place;
        if (!spsc_first(&p.q, PLACES, &place)) {
            sched_yield();
            continue;
        }
        assert_int_equal(p.places[place][0], i);
        assert_int_equal(p.places[place][1], ~i);
        p.places[place][0] = p.places[place][1] = 0;
        spsc_pop(&p.q);
        i++;
    }
    pthread_join(producer, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_alone),
        cmocka_unit_test(test_two_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
