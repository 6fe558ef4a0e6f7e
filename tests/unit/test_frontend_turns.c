/* Whose requests get the slots, and how many may wait: processes take turns, then the clients of
 * each. All frontends of a process count as one. The truth: docs/protocol.md. */
#include "frontend_client.h"

enum { ALICE = 71, BOB = 72 };

static void send_for(struct client *c, uint32_t id, uint64_t client, uint32_t max_tokens)
{
    Moed__V1__Generate generate = MOED__V1__GENERATE__INIT;
    generate.client = client;
    generate.max_tokens = max_tokens;
    generate.ignore_end = true;
    client_submit_short(c, id, &generate);
}

/* Two frontends of one process, which is not this one. */
static void attach_two(struct client *one, struct client *two)
{
    int fds[2][2];
    make_pairs(fds, 2);
    client_attach_over(one, fds[0]);
    client_attach_over(two, fds[1]);
}

static void nothing(void *arg)
{
    (void)arg;
}

/* Each call comes after another look at the queue, and a step. */
static void let_engine_work(void)
{
    for (int i = 0; i < 20; i++)
        assert_true(engine_call(b.engine, nothing, NULL));
}

static uint32_t count_waiting(void)
{
    return engine_status(b.engine).waiting;
}

/* Both slots are Alice's, and compute nothing more until the client acknowledges. */
static void fill_slots(struct client *c)
{
    send_for(c, 1, ALICE, 0);
    send_for(c, 2, ALICE, 0);
    await_count(count_running, 2);
    client_await(c, &c->events, FRONTEND_WINDOW);
}

static void detach(struct client *c)
{
    channel_close(c->channel, 0);
}

/* Alice's requests wait; Bob's comes later and gets the first slot. */
static void test_clients(void **state)
{
    static struct client c;
    (void)state;
    client_attach(&c);
    fill_slots(&c);
    for (uint32_t id = 3; id <= 5; id++)
        send_for(&c, id, ALICE, 1);
    send_for(&c, 6, BOB, 1);
    await_count(count_waiting, 4);
    client_cancel(&c, 1);
    client_await(&c, &c.answers[1].n_done, 1);
    client_acknowledge(&c, 64);
    for (uint32_t id = 3; id <= 6; id++)
        client_await(&c, &c.answers[id].n_done, 1);
    assert_true(c.answers[6].ended < c.answers[3].ended);
    assert_true(c.answers[3].ended < c.answers[4].ended);
    assert_true(c.answers[4].ended < c.answers[5].ended);
    detach(&c);
    await_count(count_frontends, 0);
}

/* So do those that come by a second frontend of the process, as moed-http has for grammars; but
 * Alice's there do not overtake those that she sent before. */
static void test_two_frontends(void **state)
{
    static struct client one, two;
    (void)state;
    attach_two(&one, &two);
    fill_slots(&one);
    send_for(&one, 3, ALICE, 1);
    await_count(count_waiting, 1);
    send_for(&two, 1, ALICE, 1);
    await_count(count_waiting, 2);
    client_cancel(&one, 1); /* request 3 gets the slot, and waits for the acknowledgement */
    client_await(&one, &one.answers[1].n_done, 1);
    let_engine_work();
    pthread_mutex_lock(&two.lock);
    assert_int_equal(two.answers[1].n_done, 0);
    pthread_mutex_unlock(&two.lock);
    send_for(&two, 2, BOB, 1);
    await_count(count_waiting, 2);
    client_cancel(&one, 3);
    client_await(&two, &two.answers[2].n_done, 1);
    client_await(&two, &two.answers[1].n_done, 1);
    assert_true(two.answers[2].ended < two.answers[1].ended);
    detach(&one);
    detach(&two);
    await_count(count_frontends, 0);
}

/* A process gains nothing by naming clients: another one that has less gets the slot. */
static void test_processes(void **state)
{
    static struct client c, other;
    (void)state;
    client_attach(&c);
    client_attach(&other);
    fill_slots(&c);
    send_for(&c, 3, BOB, 0);
    await_count(count_waiting, 1);
    send_for(&other, 1, 0, 1);
    await_count(count_waiting, 2);
    client_cancel(&c, 1);
    client_await(&other, &other.answers[1].n_done, 1);
    pthread_mutex_lock(&c.lock);
    assert_int_equal(c.answers[3].n_tokens, 0); /* its frontend is behind */
    pthread_mutex_unlock(&c.lock);
    detach(&c);
    detach(&other);
    await_count(count_frontends, 0);
}

static void score_for(struct client *c, uint64_t id, uint64_t client,
                      Moed__V1__Generate__Priority priority)
{
    uint32_t tokens[] = {1, 2, 3};
    Moed__V1__LogprobsRequest logprobs = MOED__V1__LOGPROBS_REQUEST__INIT;
    logprobs.tokens = tokens;
    logprobs.n_tokens = 3;
    logprobs.client = client;
    logprobs.priority = priority;
    Moed__V1__ToWorker m = MOED__V1__TO_WORKER__INIT;
    m.id = id;
    m.body_case = MOED__V1__TO_WORKER__BODY_LOGPROBS;
    m.logprobs = &logprobs;
    client_send(c, &m);
}

/* Texts that are scored take turns with answers, and may give way to them. */
static void test_scored_texts(void **state)
{
    static struct client c;
    (void)state;
    client_attach(&c);
    fill_slots(&c);
    score_for(&c, 3, BOB, MOED__V1__GENERATE__PRIORITY__BATCH);
    send_for(&c, 4, ALICE, 1);
    score_for(&c, 5, ALICE, MOED__V1__GENERATE__PRIORITY__INTERACTIVE);
    score_for(&c, 6, BOB, MOED__V1__GENERATE__PRIORITY__INTERACTIVE);
    await_count(count_waiting, 4);
    client_cancel(&c, 1);
    client_acknowledge(&c, 64);
    for (uint32_t id = 3; id <= 6; id++)
        client_await(&c, &c.answers[id].n_done, 1);
    assert_true(c.answers[6].ended < c.answers[5].ended);
    assert_true(c.answers[5].ended < c.answers[3].ended);
    detach(&c);
    await_count(count_frontends, 0);
}

/* A request that names no client is of its salt's. */
static void test_salts(void **state)
{
    static struct client c;
    (void)state;
    client_attach(&c);
    fill_slots(&c);
    send_for(&c, 3, ALICE, 1);
    Moed__V1__Generate generate = MOED__V1__GENERATE__INIT;
    generate.cache_salt = BOB;
    generate.max_tokens = 1;
    client_submit_short(&c, 4, &generate);
    generate.cache_salt = ALICE;
    client_submit_short(&c, 5, &generate);
    await_count(count_waiting, 3);
    client_cancel(&c, 1);
    client_acknowledge(&c, 64);
    for (uint32_t id = 3; id <= 5; id++)
        client_await(&c, &c.answers[id].n_done, 1);
    assert_true(c.answers[4].ended < c.answers[3].ended);
    assert_true(c.answers[3].ended < c.answers[5].ended);
    detach(&c);
    await_count(count_frontends, 0);
}

/* What a client may have counts over the frontends of its process; then another client gets in, and
 * then only another process. */
static void test_limits(void **state)
{
    static struct client one, two, other;
    (void)state;
    attach_two(&one, &two);
    client_attach(&other);
    for (uint32_t id = 1; id <= 3; id++)
        send_for(&one, id, ALICE, 0);
    await_count(count_requests, 3);
    for (uint32_t id = 1; id <= 3; id++)
        send_for(&two, id, ALICE, 0);
    client_await(&two, &two.answers[3].n_errors, 1);
    assert_non_null(strstr(two.answers[3].message, "5 requests of this client"));
    assert_true(two.answers[3].retry);
    send_for(&two, 4, BOB, 0);
    send_for(&two, 5, BOB, 0);
    client_await(&two, &two.answers[5].n_errors, 1);
    assert_non_null(strstr(two.answers[5].message, "6 requests of this process"));
    assert_int_equal(two.answers[4].n_errors, 0);
    send_for(&other, 1, ALICE, 1);
    await_count(count_requests, 7);
    for (uint32_t id = 1; id <= 3; id++)
        client_cancel(&one, id);
    client_await(&other, &other.answers[1].n_done, 1);
    assert_int_equal(other.answers[1].n_errors, 0);
    detach(&one);
    detach(&two);
    detach(&other);
    await_count(count_frontends, 0);
}

/* Of each queue in which there is space for it, a place is kept for other processes. */
static void test_places_kept(void **state)
{
    static const uint32_t rows[][3] = {
        /* queue, and how many of it are a process's, a client's */
        {1, 1, 1}, {3, 3, 3},    {4, 3, 3},        {7, 6, 6},
        {8, 7, 6}, {16, 14, 12}, {1024, 896, 768}, {1u << 20, 7u << 17, 3u << 18}};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct frontends_model model = {0};
        frontends_set_limits(&model, 32, rows[i][0]);
        assert_int_equal(model.process.requests, 32 + rows[i][1]);
        assert_int_equal(model.client.requests, 32 + rows[i][2]);
        assert_true(model.client.bytes < model.process.bytes);
        assert_true(model.process.bytes < model.most_bytes_all);
    }
}

/* A worker has gone, and its requests come to this one, where the client has as many as it may.
 * None of them is refused. */
static void test_resumed(void **state)
{
    static struct client c;
    (void)state;
    client_attach(&c);
    for (uint32_t id = 0; id < MOST_WAITING; id++)
        send_for(&c, id, ALICE, 0);
    await_count(count_requests, MOST_WAITING);
    for (uint32_t id = MOST_WAITING; id < MOST_REQUESTS; id++) {
        Moed__V1__Generate generate = MOED__V1__GENERATE__INIT;
        generate.client = ALICE;
        generate.resumed = true;
        client_submit_short(&c, id, &generate);
    }
    await_count(count_requests, MOST_REQUESTS);
    detach(&c);
    await_count(count_frontends, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_clients, open_worker, close_worker),
        cmocka_unit_test_setup_teardown(test_two_frontends, open_worker, close_worker),
        cmocka_unit_test_setup_teardown(test_processes, open_worker, close_worker),
        cmocka_unit_test_setup_teardown(test_scored_texts, open_worker, close_worker),
        cmocka_unit_test_setup_teardown(test_salts, open_worker, close_worker),
        cmocka_unit_test_setup_teardown(test_limits, open_worker, close_worker),
        cmocka_unit_test_setup_teardown(test_resumed, open_worker, close_worker),
        cmocka_unit_test(test_places_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
