/* The queue of requests that wait for a slot (worker/serve/queue.h). The truth: the rules in its
 * header, by hand, and applied to a plain list. */
#include "worker/serve/queue.h"
#include "random_numbers.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <string.h>

static struct request_queue q;

static struct request *submit(uint64_t process, uint64_t client)
{
    struct request *r = request_new(NULL, REQUEST_GENERATE, NULL, NULL);
    assert_non_null(r);
    r->process = process;
    r->client = client;
    request_queue_append(&q, r);
    return r;
}

/* The next one gets a slot. */
static struct request *start(void)
{
    struct request *r = request_queue_next(&q);
    assert_non_null(r);
    request_queue_remove(&q, r);
    request_queue_start(&q, r);
    return r;
}

static void suspend(struct request *r)
{
    r->n_pages_lost++;
    request_queue_stop(&q, r);
    request_queue_push_front(&q, r);
}

static void forget(struct request *r)
{
    request_queue_forget(&q, r);
    request_free(r);
}

static void end(struct request *r)
{
    request_queue_stop(&q, r);
    forget(r);
}

static void end_waiting(struct request *r)
{
    request_queue_remove(&q, r);
    forget(r);
}

static int set_up(void **state)
{
    (void)state;
    request_queue_init(&q);
    return 0;
}

/* Nothing is left of those that have gone. */
static int tear_down(void **state)
{
    (void)state;
    bool empty = !q.first && !q.n && q.end == &q.first && !q.aside;
    for (int i = 0; i < QUEUE_PRIORITIES; i++)
        empty = empty && !q.processes[i].first;
    for (int i = 0; i < QUEUE_BUCKETS; i++)
        empty = empty && !q.buckets[i];
    return empty ? 0 : 1;
}

enum { ALICE = 1, BOB, CAROL, HTTP = 100, RUN };

/* One client has 50 requests, another one's comes last. */
static void test_clients(void **state)
{
    struct request *alice[50], *running[2];
    (void)state;
    for (int i = 0; i < 50; i++)
        alice[i] = submit(HTTP, ALICE);
    running[0] = start();
    running[1] = start();
    struct request *bob = submit(HTTP, BOB);
    assert_ptr_equal(running[0], alice[0]);
    assert_ptr_equal(running[1], alice[1]);
    end(running[0]);
    assert_ptr_equal(start(), bob);
    end(bob);
    for (int i = 2; i < 50; i++) {
        assert_ptr_equal(start(), alice[i]);
        end(alice[i]);
    }
    end(alice[1]);
}

/* With one slot nobody has more running than others when it gets free: they take turns. */
static void test_one_slot(void **state)
{
    uint64_t order[9];
    (void)state;
    for (int i = 0; i < 4; i++)
        submit(HTTP, ALICE);
    struct request *r = start();
    for (int i = 0; i < 3; i++)
        submit(HTTP, BOB);
    submit(HTTP, CAROL);
    submit(HTTP, CAROL);
    for (int i = 0; i < 9; i++) {
        order[i] = r->client;
        end(r);
        r = i < 8 ? start() : NULL;
    }
    const uint64_t turns[9] = {ALICE, BOB, CAROL, ALICE, BOB, CAROL, ALICE, BOB, ALICE};
    assert_memory_equal(order, turns, sizeof turns);
}

/* A process with many clients gets no more than one with one. */
static void test_processes(void **state)
{
    struct request *running[8];
    uint32_t n_http = 0;
    (void)state;
    for (uint64_t i = 0; i < 40; i++)
        submit(HTTP, i);
    for (int i = 0; i < 10; i++)
        submit(RUN, 0);
    for (int i = 0; i < 8; i++) {
        running[i] = start();
        n_http += running[i]->process == HTTP;
    }
    assert_int_equal(n_http, 4);
    for (int i = 0; i < 8; i++)
        end(running[i]);
    while (q.first)
        end_waiting(q.first);
}

/* Interactive requests come before batch ones, also those of another client. */
static void test_priority(void **state)
{
    (void)state;
    struct request *r[4];
    for (int i = 0; i < 4; i++) {
        r[i] = request_new(NULL, REQUEST_GENERATE, NULL, NULL);
        r[i]->process = HTTP;
        r[i]->client = i < 3 ? ALICE : BOB;
        r[i]->priority = i % 2 ? PRIORITY_BATCH : PRIORITY_INTERACTIVE;
        request_queue_append(&q, r[i]);
    }
    assert_ptr_equal(start(), r[0]);
    assert_ptr_equal(start(), r[2]);
    assert_ptr_equal(start(), r[3]); /* Bob has none */
    assert_ptr_equal(start(), r[1]);
    for (int i = 0; i < 4; i++)
        end(r[i]);
}

/* Requests that had a slot come first: the last one that was suspended, and behind these what
 * another worker began, in order. */
static void test_had_slot(void **state)
{
    (void)state;
    struct request *alice[3], *begun[2];
    for (int i = 0; i < 3; i++)
        alice[i] = submit(HTTP, ALICE);
    start();
    start();
    struct request *bob = submit(HTTP, BOB);
    suspend(alice[0]);
    suspend(alice[1]);
    for (int i = 0; i < 2; i++) {
        begun[i] = request_new(NULL, REQUEST_GENERATE, NULL, NULL);
        begun[i]->n_generated = 1;
        request_queue_append(&q, begun[i]);
    }
    assert_int_equal(q.n, 6);
    struct request *const order[] = {alice[1], alice[0], begun[0], begun[1], bob, alice[2]};
    for (int i = 0; i < 6; i++)
        assert_ptr_equal(start(), order[i]);
    for (int i = 0; i < 6; i++)
        end(order[i]);
}

/* Bob has none running: his comes between Alice's. Others come before requests that are set aside,
 * which have their places again later. */
static void test_aside(void **state)
{
    (void)state;
    struct request *r[6];
    for (int i = 0; i < 5; i++)
        r[i] = submit(HTTP, ALICE);
    r[5] = submit(HTTP, BOB);
    for (int i = 0; i < 3; i++) {
        struct request *next = request_queue_next(&q);
        assert_ptr_equal(next, r[i]);
        request_queue_set_aside(&q, next);
    }
    r[1]->waits_for = 7;
    request_queue_look_again(&q);
    assert_ptr_equal(start(), r[0]);
    assert_ptr_equal(start(), r[5]);
    assert_ptr_equal(start(), r[2]);
    assert_ptr_equal(start(), r[3]);
    r[1]->waits_for = 0;
    request_queue_look_again(&q);
    assert_ptr_equal(request_queue_next(&q), r[1]);
    request_queue_set_aside(&q, r[1]);
    end_waiting(r[1]); /* cancelled */
    assert_ptr_equal(start(), r[4]);
    assert_null(request_queue_next(&q));
    suspend(r[4]);
    request_queue_set_aside(&q, r[4]);
    assert_null(request_queue_next(&q));
    request_queue_look_again(&q);
    assert_ptr_equal(start(), r[4]);
    for (int i = 0; i < 6; i++)
        if (i != 1)
            end(r[i]);
}

/* Alice's second request overtakes her first one, which waits for pages. The first one still comes
 * before Bob's, also when it is looked at again. */
static void test_keeps_turn(void **state)
{
    (void)state;
    struct request *large = submit(HTTP, ALICE), *small = submit(HTTP, ALICE);
    struct request *bob = submit(HTTP, BOB);
    request_queue_keep_turn(&q, large);
    request_queue_set_aside(&q, large);
    assert_ptr_equal(start(), small);
    for (int i = 0; i < 2; i++) {
        request_queue_look_again(&q);
        assert_ptr_equal(request_queue_next(&q), large);
        request_queue_set_aside(&q, large);
    }
    assert_ptr_equal(request_queue_next(&q), bob);
    request_queue_keep_turn(&q, bob); /* no effect: the large one does */
    request_queue_look_again(&q);
    assert_ptr_equal(start(), large);
    suspend(large);
    request_queue_keep_turn(&q, large); /* no effect: it comes first as it is */
    assert_ptr_equal(start(), large);
    request_queue_keep_turn(&q, bob);
    end_waiting(bob);
    assert_null(request_queue_next(&q));
    end(large);
    end(small);
}

/* ---- Any sequence ---- */

enum { PROCESSES = 3, CLIENTS = 5, MOST = 60, SLOTS = 6, STEPS = 200000 };

static struct {
    uint32_t running;
    uint64_t turn, requests;
} processes[PROCESSES], clients[PROCESSES][CLIENTS];

static struct request *waiting[MOST], *running[SLOTS]; /* waiting: in order */
static struct request *kept[QUEUE_PRIORITIES];
static uint32_t n_waiting, n_running;
static uint64_t n_turns;

static void note_running(const struct request *r, int more)
{
    clients[r->process][r->client].running += (uint32_t)more;
    clients[r->process][r->client].turn = ++n_turns;
    processes[r->process].running += (uint32_t)more;
    processes[r->process].turn = ++n_turns;
}

static void note_new(const struct request *r)
{
    if (processes[r->process].requests++ == 0)
        processes[r->process].turn = ++n_turns;
    if (clients[r->process][r->client].requests++ == 0)
        clients[r->process][r->client].turn = ++n_turns;
}

static void note_gone(const struct request *r)
{
    processes[r->process].requests--;
    clients[r->process][r->client].requests--;
}

static bool comes_first(const struct request *a, const struct request *b)
{
    bool a_had = a->n_pages_lost > 0, b_had = b->n_pages_lost > 0;
    uint64_t p = a->process, o = b->process;
    if (a_had || b_had)
        return a_had && !b_had;
    if (a->priority != b->priority)
        return a->priority < b->priority;
    if (kept[a->priority] == a || kept[a->priority] == b)
        return kept[a->priority] == a;
    if (processes[p].running != processes[o].running)
        return processes[p].running < processes[o].running;
    if (p != o)
        return processes[p].turn < processes[o].turn;
    if (clients[p][a->client].running != clients[p][b->client].running)
        return clients[p][a->client].running < clients[p][b->client].running;
    return a->client != b->client && clients[p][a->client].turn < clients[p][b->client].turn;
}

static struct request *best_of_list(void)
{
    struct request *best = NULL;
    for (uint32_t i = 0; i < n_waiting; i++)
        if (!waiting[i]->place.aside && (!best || comes_first(waiting[i], best)))
            best = waiting[i];
    return best;
}

static void put(struct request *r, uint32_t at)
{
    memmove(waiting + at + 1, waiting + at, (n_waiting++ - at) * sizeof *waiting);
    waiting[at] = r;
}

static void take(const struct request *r)
{
    uint32_t at = 0;
    while (waiting[at] != r)
        at++;
    memmove(waiting + at, waiting + at + 1, (--n_waiting - at) * sizeof *waiting);
    if (kept[r->priority] == r)
        kept[r->priority] = NULL;
}

static void submit_any(void)
{
    struct request *r = request_new(NULL, REQUEST_GENERATE, NULL, NULL);
    r->process = below(PROCESSES);
    r->client = below(CLIENTS);
    r->priority = below(4) ? PRIORITY_INTERACTIVE : PRIORITY_BATCH;
    note_new(r);
    request_queue_append(&q, r);
    put(r, n_waiting);
}

static void start_any(void)
{
    struct request *r = start();
    take(r);
    note_running(r, 1);
    running[n_running++] = r;
}

static void stop_any(bool ends)
{
    uint32_t at = below(n_running);
    struct request *r = running[at];
    running[at] = running[--n_running];
    note_running(r, -1);
    if (ends) {
        note_gone(r);
        end(r);
    } else {
        suspend(r);
        put(r, 0);
    }
}

static void step(void)
{
    struct request *next = request_queue_next(&q);
    assert_ptr_equal(next, best_of_list());
    assert_int_equal(q.n, n_waiting);
    uint32_t what = below(16);
    if (what < 6 && n_waiting < MOST - SLOTS) {
        submit_any();
    } else if (what < 9 && n_running < SLOTS && next) {
        start_any();
    } else if (what < 12 && n_running) {
        stop_any(what > 9);
    } else if (what == 12 && n_waiting) {
        struct request *r = waiting[below(n_waiting)];
        take(r);
        note_gone(r);
        end_waiting(r);
    } else if (what < 15 && next) {
        if (below(4) == 0) {
            request_queue_keep_turn(&q, next);
            if (!kept[next->priority] && !next->n_pages_lost)
                kept[next->priority] = next;
        }
        next->waits_for = below(3) == 0;
        request_queue_set_aside(&q, next);
    } else {
        for (uint32_t i = 0; i < n_waiting; i++)
            waiting[i]->waits_for = waiting[i]->waits_for && below(2);
        request_queue_look_again(&q);
    }
}

static void test_any(void **state)
{
    (void)state;
    random_state = 1;
    for (int i = 0; i < STEPS; i++)
        step();
    while (n_running)
        end(running[--n_running]);
    while (n_waiting)
        end_waiting(waiting[--n_waiting]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_clients, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_one_slot, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_processes, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_priority, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_had_slot, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_aside, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_keeps_turn, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_any, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
