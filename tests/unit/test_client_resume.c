/* libmoed with a stand-in worker (stand_in_worker.h) that goes and comes back: what its requests
 * become, and how long a session waits. */
#include "client_session.h"

#include "base/clock.h"
#include "daemon/supervisor_client.h"
#include "daemon/supervisor_protocol.h"
#include "ipc/rpc.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

/* ---- Requests ---- */

/* The figures of an answer that two workers gave: of the first one's prompt, and of the whole time.
 * Also where it is cancelled, or ends before a token. */
static void test_result_continues(void **state)
{
    enum { ANSWER, CANCELLED, QUIET, CASES };
    (void)state;
    for (int how = 0; how < CASES; how++) {
        struct moed_session *s;
        struct moed_generate_options prompt = prompt_of(how == QUIET ? "quiet" : "count 20");
        struct moed_request *r;
        const struct moed_event *event = NULL;
        assert_int_equal(moed_attach(NULL, &s, NULL), MOED_OK);
        uint64_t begin = clock_ns();
        assert_int_equal(moed_generate_start(s, &prompt, &r, NULL), MOED_OK);
        uint64_t begun = clock_ns();
        unsigned first = stand_in_peers(&worker) - 1;
        while (stand_in_look(&worker, first).sent < (how == QUIET ? 0 : WINDOW))
            pause_ms(1);
        uint64_t hung_up = clock_ns();
        stand_in_hang_up(&worker, first);
        while (stand_in_peers(&worker) == first + 1 ||
               stand_in_look(&worker, first + 1).generates == 0)
            pause_ms(1);
        uint64_t resumed = clock_ns();
        if (how != ANSWER)
            moed_request_cancel(r);
        do
            assert_int_equal(moed_request_next(r, FOR_EVER, &event, NULL), MOED_OK);
        while (event->kind != MOED_EVENT_DONE);
        const struct moed_result *got = event->result;
        assert_int_equal(got->resumed, 1);
        assert_int_equal(got->prompt_tokens, 7);
        assert_int_equal(got->cached_tokens, how == QUIET ? 6 : 2);
        uint64_t whole = got->queue_ns + got->prefill_ns + got->decode_ns;
        assert_in_range(whole, how == CANCELLED ? 1 : hung_up - begun, clock_ns() - begin);
        assert_true(how != ANSWER || got->decode_ns > 13); /* what the second one says */
        assert_true(how != QUIET || got->prefill_ns >= resumed - begun);
        moed_request_free(r);
        moed_detach(s);
    }
}

/* The worker closes the channel as soon as it is there: the session gets another, and no channel is
 * lost (LeakSanitizer). */
static void test_closes_at_once(void **state)
{
    (void)state;
    for (int i = 0; i < 30; i++) {
        struct moed_session *s;
        struct moed_generate_options prompt = prompt_of("count 3");
        struct moed_request *r;
        const struct moed_event *event;
        pthread_mutex_lock(&worker.lock);
        worker.closes = true;
        pthread_mutex_unlock(&worker.lock);
        assert_int_equal(moed_attach(NULL, &s, NULL), MOED_OK);
        assert_int_equal(moed_generate_start(s, &prompt, &r, NULL), MOED_OK);
        for (int n = 0; n < 4; n++)
            assert_int_equal(moed_request_next(r, FOR_EVER, &event, NULL), MOED_OK);
        assert_int_equal(event->kind, MOED_EVENT_DONE);
        moed_request_free(r);
        moed_detach(s);
    }
}

/* Waits until the session that attached after `first` ones has sent n Generates. */
static void await_generates(unsigned first, uint32_t n)
{
    for (int ms = 0; stand_in_peers(&worker) <= first || /* its Generates come after it */
                     stand_in_look(&worker, first).generates < n;
         ms++) {
        assert_true(ms < 60000);
        pause_ms(1);
    }
}

static const struct moed_event *await_done(struct moed_request *r)
{
    const struct moed_event *event;
    do
        assert_int_equal(moed_request_next(r, FOR_EVER, &event, NULL), MOED_OK);
    while (event->kind != MOED_EVENT_DONE);
    return event;
}

/* Ends the session's worker, and waits until the session knows and no other takes it. */
static void lose_worker(unsigned peer)
{
    unsigned refused = stand_in_refused(&worker);
    stand_in_refuse(&worker, true);
    stand_in_hang_up(&worker, peer);
    while (stand_in_refused(&worker) == refused)
        pause_ms(1);
}

/* Requests that are more than a channel's queue takes are sent to the next worker, too, in the
 * order of their start. Those that are cancelled or freed before their message leaves do not run
 * there. */
static void test_many_continue(void **state)
{
    enum { N = 20, BYTES = RPC_MESSAGE_BYTES - 4096, FIRST_ENDED = N - 5, LAST = N - 1 };
    _Static_assert((uint64_t)(N - 2) * BYTES > CHANNEL_QUEUE_BYTES, "the queue gets full");
    char *bulk = calloc(1, BYTES);
    struct moed_generate_options prompt = {
        .size = sizeof prompt, .prompt = strcpy(bulk, "quiet"), .prompt_bytes = BYTES};
    struct moed_request *r[N];
    uint64_t ids[N];
    struct moed_session *s;
    (void)state;
    assert_int_equal(moed_attach(NULL, &s, NULL), MOED_OK);
    unsigned first = stand_in_peers(&worker) - 1;
    for (uint32_t i = 0; i < N; i++) {
        assert_int_equal(moed_generate_start(s, &prompt, &r[i], NULL), MOED_OK);
        await_generates(first, i + 1);
        ids[i] = stand_in_look(&worker, first).last_id;
    }
    worker.stalls = true;
    stand_in_hang_up(&worker, first);
    while (stand_in_peers(&worker) == first + 1 || !worker.stalled)
        pause_ms(1);
    pause_ms(100); /* the queue gets full; else less is tested */
    for (uint32_t i = FIRST_ENDED; i < LAST; i++)
        if (i % 2)
            moed_request_cancel(r[i]);
        else
            moed_request_free(r[i]);
    worker.stalls = false;
    for (int ms = 0; !stand_in_has(&worker, first + 1, ids[LAST]); ms++) {
        assert_true(ms < 60000);
        pause_ms(1);
    }
    assert_false(stand_in_look(&worker, first + 1).disordered);
    for (uint32_t i = 0; i < N; i++) {
        bool ended = i >= FIRST_ENDED && i < LAST;
        assert_int_equal(stand_in_has(&worker, first + 1, ids[i]), !ended);
        if (ended && i % 2)
            assert_int_equal(await_done(r[i])->result->reason, MOED_REASON_CANCELLED);
        if (!ended || i % 2)
            moed_request_free(r[i]);
    }
    moed_detach(s);
    free(bulk);
}

/* A request that is finished before its message leaves is so for the next worker, too. */
static void test_finished_before_it_is_sent(void **state)
{
    enum { BYTES = RPC_MESSAGE_BYTES - 4096, N = CHANNEL_QUEUE_BYTES / BYTES + 3 };
    char *bulk = calloc(1, BYTES);
    struct moed_generate_options prompt = {
        .size = sizeof prompt, .prompt = strcpy(bulk, "quiet"), .prompt_bytes = BYTES};
    struct moed_request *r[N];
    struct moed_session *s;
    (void)state;
    assert_int_equal(moed_attach(NULL, &s, NULL), MOED_OK);
    unsigned first = stand_in_peers(&worker) - 1;
    lose_worker(first);
    for (uint32_t i = 0; i < N; i++)
        assert_int_equal(moed_generate_start(s, &prompt, &r[i], NULL), MOED_OK);
    worker.stalls = true;
    stand_in_refuse(&worker, false);
    while (!worker.stalled)
        pause_ms(1);
    pause_ms(200); /* the queue gets full; else less is tested */
    for (uint32_t i = 0; i < N; i++)
        moed_request_finish(r[i]);
    worker.stalls = false;
    for (uint32_t i = 0; i < N; i++) {
        assert_int_equal(await_done(r[i])->result->reason, MOED_REASON_END);
        moed_request_free(r[i]);
    }
    const struct peer p = stand_in_look(&worker, first + 1);
    assert_true(p.cancels && p.cancels == p.completes);
    moed_detach(s);
    free(bulk);
}

/* The message that the next worker gets: that another one had taken the request, and what is left
 * of its deadline, which is for the start of the answer; progress shows that, too. */
static void test_message_continues(void **state)
{
    enum { BEGUN, COMPUTED, WAITS, LATE, NONE, CASES };
    static const char *const prompts[CASES] = {
        [BEGUN] = "hold", [COMPUTED] = "compute", "quiet", "quiet", "quiet"};
    (void)state;
    for (int how = 0; how < CASES; how++) {
        struct moed_session *s;
        struct moed_generate_options prompt = prompt_of(prompts[how]);
        prompt.progress = how == COMPUTED;
        prompt.deadline_ms = how == NONE ? 0 : how == LATE || how == COMPUTED ? 1 : 100000;
        struct moed_request *r;
        const struct moed_event *event;
        struct moed_error error;
        assert_int_equal(moed_attach(NULL, &s, NULL), MOED_OK);
        unsigned first = stand_in_peers(&worker) - 1;
        assert_int_equal(moed_generate_start(s, &prompt, &r, NULL), MOED_OK);
        await_generates(first, 1);
        assert_false(worker.peers[first].last->resumed);
        assert_int_equal(worker.peers[first].last->deadline_ms, prompt.deadline_ms);
        if (how == BEGUN || how == COMPUTED)
            assert_int_equal(moed_request_next(r, FOR_EVER, &event, NULL), MOED_OK);
        pause_ms(3);
        stand_in_hang_up(&worker, first);
        if (how == LATE) {
            assert_int_equal(moed_request_next(r, FOR_EVER, &event, &error), MOED_ERROR_TIMEOUT);
            assert_false(error.retry);
            assert_non_null(strstr(error.message, "deadline"));
        } else {
            await_generates(first + 1, 1);
            const Moed__V1__Generate *g = worker.peers[first + 1].last;
            assert_true(g->resumed);
            assert_int_equal(g->n_answer, how == BEGUN);
            assert_in_range(g->deadline_ms, how == WAITS, how == WAITS ? 99999 : 0);
        }
        moed_request_free(r);
        moed_detach(s);
    }
}

/* A request that starts while there is no worker is a new one for the next worker. */
static void test_starts_without_worker(void **state)
{
    struct moed_session *s;
    struct moed_generate_options prompt = prompt_of("count 3");
    struct moed_request *r;
    (void)state;
    assert_int_equal(moed_attach(NULL, &s, NULL), MOED_OK);
    unsigned first = stand_in_peers(&worker) - 1;
    lose_worker(first);
    assert_int_equal(moed_generate_start(s, &prompt, &r, NULL), MOED_OK);
    stand_in_refuse(&worker, false);
    await_done(r);
    assert_false(worker.peers[first + 1].last->resumed);
    moed_request_free(r);
    moed_detach(s);
}

/* Where there is no worker, a request that is cancelled ends at once, and no later worker is sent
 * it: with a part of its answer, cancelled before its worker went, which did not react, and started
 * after. Others go on. */
static void test_cancels_without_worker(void **state)
{
    enum { BEGUN, BEFORE, STARTED, N };
    struct moed_session *s;
    struct moed_generate_options hold = prompt_of("hold"), deaf = prompt_of("deaf"),
                                 count = prompt_of("count 3");
    struct moed_request *r[N], *kept;
    const struct moed_event *event;
    (void)state;
    assert_int_equal(moed_attach(NULL, &s, NULL), MOED_OK);
    unsigned first = stand_in_peers(&worker) - 1;
    assert_int_equal(moed_generate_start(s, &hold, &r[BEGUN], NULL), MOED_OK);
    assert_int_equal(moed_request_next(r[BEGUN], 60000, &event, NULL), MOED_OK);
    assert_int_equal(moed_generate_start(s, &deaf, &r[BEFORE], NULL), MOED_OK);
    assert_int_equal(moed_generate_start(s, &hold, &kept, NULL), MOED_OK);
    await_generates(first, 3);
    moed_request_cancel(r[BEFORE]);
    while (!stand_in_look(&worker, first).cancels)
        pause_ms(1);
    lose_worker(first);
    assert_int_equal(moed_generate_start(s, &count, &r[STARTED], NULL), MOED_OK);
    moed_request_cancel(r[BEGUN]);
    moed_request_cancel(r[STARTED]);
    for (int i = 0; i < N; i++) {
        const struct moed_result *result = await_done(r[i])->result;
        assert_int_equal(result->reason, MOED_REASON_CANCELLED);
        assert_int_equal(result->generated_tokens, i == BEGUN);
        moed_request_cancel(r[i]);
        assert_int_equal(await_done(r[i])->result->reason, MOED_REASON_CANCELLED);
    }
    stand_in_refuse(&worker, false);
    await_generates(first + 1, 1);
    moed_request_cancel(kept);
    await_done(kept);
    assert_int_equal(stand_in_look(&worker, first + 1).generates, 1);
    moed_request_free(kept);
    for (int i = 0; i < N; i++)
        moed_request_free(r[i]);
    moed_detach(s);
}

/* A worker goes whose queue was full: the requests that it was not sent are new to the next one. */
static void test_unsent_are_new(void **state)
{
    enum { BYTES = RPC_MESSAGE_BYTES - 4096, QUEUED = CHANNEL_QUEUE_BYTES / BYTES, N = QUEUED + 4 };
    char *bulk = calloc(1, BYTES);
    struct moed_generate_options prompt = {
        .size = sizeof prompt, .prompt = strcpy(bulk, "quiet"), .prompt_bytes = BYTES};
    struct moed_request *r[N];
    struct moed_session *s;
    (void)state;
    assert_int_equal(moed_attach(NULL, &s, NULL), MOED_OK);
    unsigned first = stand_in_peers(&worker) - 1, second = first + 1;
    lose_worker(first);
    for (uint32_t i = 0; i < N; i++)
        assert_int_equal(moed_generate_start(s, &prompt, &r[i], NULL), MOED_OK);
    worker.stalls = true;
    stand_in_refuse(&worker, false);
    while (!worker.stalled)
        pause_ms(1);
    pause_ms(200); /* the queue gets full; else less is tested */
    stand_in_cut(&worker, second);
    while (stand_in_peers(&worker) <= second + 1)
        pause_ms(1);
    worker.stalls = false;
    await_generates(second + 1, N);
    /* the queue's, and the one that was received */
    assert_in_range(stand_in_look(&worker, second + 1).resumed, 1, QUEUED + 1);
    for (uint32_t i = 0; i < N; i++)
        moed_request_free(r[i]);
    moed_detach(s);
    free(bulk);
}

/* A request that ends each worker that is sent it ends four, whether or not there was one when it
 * started. */
static void test_deadly_request(void **state)
{
    (void)state;
    for (int later = 0; later < 2; later++) {
        struct moed_session *s;
        struct moed_generate_options prompt = prompt_of("quiet");
        struct moed_request *r;
        const struct moed_event *event;
        struct moed_error error;
        assert_int_equal(moed_attach(NULL, &s, NULL), MOED_OK);
        unsigned next = stand_in_peers(&worker) - 1;
        if (later)
            lose_worker(next++);
        assert_int_equal(moed_generate_start(s, &prompt, &r, NULL), MOED_OK);
        stand_in_refuse(&worker, false);
        for (int workers = 0; workers < 4; workers++) {
            await_generates(next, 1);
            stand_in_hang_up(&worker, next++);
        }
        assert_int_equal(moed_request_next(r, FOR_EVER, &event, &error), MOED_ERROR_UNAVAILABLE);
        assert_true(moed_session_alive(s));
        moed_request_free(r);
        moed_detach(s);
    }
}

/* ---- Sessions ---- */

/* All processes of the deployment are gone for a moment, or their directory is: the session waits
 * for what starts them again. */
static void test_deployment_restarts(void **state)
{
    enum { PROCESSES, DIRECTORY, NEVER, CASES };
    (void)state;
    for (int how = 0; how < CASES; how++) {
        char other[sizeof run_dir + 8];
        struct moed_session *s;
        struct moed_attach_options options = {.size = sizeof options,
                                              .resume_ms = how == NEVER ? 300 : 0};
        struct moed_generate_options prompt = prompt_of("count 20");
        struct moed_request *r;
        const struct moed_event *event;
        struct moed_error error;
        assert_int_equal(moed_attach(&options, &s, NULL), MOED_OK);
        unsigned first = stand_in_peers(&worker) - 1;
        assert_int_equal(moed_generate_start(s, &prompt, &r, NULL), MOED_OK);
        await_generates(first, 1);
        stand_in_stop(&worker);
        snprintf(other, sizeof other, "%s.other", run_dir);
        assert_int_equal(how == DIRECTORY ? rename(run_dir, other) : 0, 0);
        if (how == DIRECTORY) /* another's, in its place */
            assert_int_equal(mkdir(run_dir, 0755), 0);
        pause_ms(200); /* some attempts */
        if (how == NEVER) {
            while (!moed_request_next(r, FOR_EVER, &event, &error))
                assert_int_equal(event->kind, MOED_EVENT_TOKENS);
            assert_int_equal(error.code, MOED_ERROR_UNAVAILABLE);
            assert_true(error.retry);
            assert_non_null(strstr(error.message, "not running"));
            assert_false(moed_session_alive(s));
        }
        assert_int_equal(how == DIRECTORY ? rmdir(run_dir) : 0, 0);
        assert_int_equal(how == DIRECTORY ? rename(other, run_dir) : 0, 0);
        stand_in_start(&worker, run_dir, WINDOW);
        if (how != NEVER)
            assert_int_equal(await_done(r)->result->generated_tokens, 20);
        moed_request_free(r);
        moed_detach(s);
    }
}

/* No worker comes back: the session waits as long as it was told to, and ends. */
static void test_no_worker_comes(void **state)
{
    (void)state;
    struct moed_session *s;
    struct moed_attach_options options = {.size = sizeof options, .resume_ms = 300};
    assert_int_equal(moed_attach(&options, &s, NULL), MOED_OK);
    struct moed_generate_options prompt = prompt_of("quiet");
    struct moed_request *r;
    assert_int_equal(moed_generate_start(s, &prompt, &r, NULL), MOED_OK);
    stand_in_refuse(&worker, true);
    stand_in_hang_up(&worker, stand_in_peers(&worker) - 1);
    const struct moed_event *event;
    struct moed_error error;
    assert_int_equal(moed_request_next(r, FOR_EVER, &event, &error), MOED_ERROR_UNAVAILABLE);
    assert_true(error.retry);
    assert_false(moed_session_alive(s));
    moed_request_free(r);
    moed_detach(s);
    stand_in_refuse(&worker, false);
}

/* The worker that comes back has another model: the answer does not continue with it. */
static void test_another_model_comes(void **state)
{
    (void)state;
    struct moed_session *s;
    worker.model = 7;
    assert_int_equal(moed_attach(NULL, &s, NULL), MOED_OK);
    assert_false(moed_session_replaced(s));
    struct moed_generate_options prompt = prompt_of("quiet");
    struct moed_request *r;
    assert_int_equal(moed_generate_start(s, &prompt, &r, NULL), MOED_OK);
    worker.model = 8;
    stand_in_hang_up(&worker, stand_in_peers(&worker) - 1);
    const struct moed_event *event;
    struct moed_error error;
    assert_int_equal(moed_request_next(r, FOR_EVER, &event, &error), MOED_ERROR_UNAVAILABLE);
    assert_true(error.retry);
    assert_non_null(strstr(error.message, "another model"));
    assert_false(moed_session_alive(s));
    assert_true(moed_session_replaced(s));
    moed_request_free(r);
    moed_detach(s);
}

/* After the first reload the session's place serves no more, and its worker ends; after the second
 * that place serves again. */
static void reload_twice(int resume_ms)
{
    struct moed_attach_options options = {.size = sizeof options, .resume_ms = resume_ms};
    struct moed_session *s;
    struct moed_generate_options prompt = prompt_of("quiet");
    struct moed_request *r;
    const struct moed_event *event;
    struct moed_error error;
    char other[RUN_DIR_BYTES];
    worker.model = 7;
    assert_int_equal(moed_attach(&options, &s, NULL), MOED_OK);
    assert_int_equal(moed_generate_start(s, &prompt, &r, NULL), MOED_OK);
    assert_true(run_dir_place(run_dir, 1, other));
    assert_int_equal(mkdir(other, 0700), 0);
    assert_int_equal(run_dir_serve(run_dir, 1, NULL), ERROR_OK);
    assert_true(moed_session_replaced(s));
    if (resume_ms >= 0) /* else the session may see its end before the worker's socket is gone */
        stand_in_refuse(&worker, true);
    stand_in_hang_up(&worker, stand_in_peers(&worker) - 1);
    assert_int_equal(moed_request_next(r, 60000, &event, &error), MOED_ERROR_UNAVAILABLE);
    assert_non_null(strstr(error.message, "another model"));
    assert_int_equal(run_dir_serve(run_dir, 0, NULL), ERROR_OK);
    assert_true(moed_session_replaced(s));
    moed_request_free(r);
    moed_detach(s);
    stand_in_refuse(&worker, false);
    assert_int_equal(rmdir(other), 0);
}

static void test_two_reloads(void **state)
{
    (void)state;
    reload_twice(0);
    reload_twice(-1);
}

/* ---- The supervisor ---- */

/* A supervisor that reports the deployment's state, to the first command of each client. */
struct stand_in_supervisor {
    int fd;
    const char *line;
    _Atomic unsigned asked;
};

static void *supervisor_main(void *arg)
{
    struct stand_in_supervisor *s = arg;
    for (int fd; (fd = accept(s->fd, NULL, NULL)) >= 0; close(fd)) {
        char command[SUPERVISE_LINE_BYTES];
        ssize_t n = read(fd, command, sizeof command);
        if (n == 7 && memcmp(command, "status\n", 7) == 0) {
            s->asked++;
            dprintf(fd, "%s\nprocess\tname=memd\tstate=ready\tpid=0\nok\n", s->line);
        }
    }
    return NULL;
}

static void supervisor_start(struct stand_in_supervisor *s, pthread_t *thread)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%s/%s", run_dir, SUPERVISE_SOCKET);
    s->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(s->fd, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(s->fd, 8), 0);
    pthread_create(thread, NULL, supervisor_main, s);
}

static void supervisor_stop(struct stand_in_supervisor *s, pthread_t thread)
{
    char path[RUN_PATH_BYTES];
    shutdown(s->fd, SHUT_RDWR);
    pthread_join(thread, NULL);
    close(s->fd);
    run_dir_file(run_dir, SUPERVISE_SOCKET, path);
    unlink(path);
}

/* The supervisor has given the worker up: the session does not wait for its two minutes. */
static void test_supervisor_gave_up(void **state)
{
    (void)state;
    struct stand_in_supervisor supervisor = {
        .line = "deployment\tname=x\tstate=failed\tpid=1\tuptime_ms=5\tmodel=m\t"
                "reason=worker has failed: exit status 3"};
    pthread_t thread;
    supervisor_start(&supervisor, &thread);
    struct moed_session *s;
    assert_int_equal(moed_attach(NULL, &s, NULL), MOED_OK);
    struct moed_generate_options prompt = prompt_of("quiet");
    struct moed_request *r;
    assert_int_equal(moed_generate_start(s, &prompt, &r, NULL), MOED_OK);
    stand_in_refuse(&worker, true);
    stand_in_hang_up(&worker, stand_in_peers(&worker) - 1);
    const struct moed_event *event;
    struct moed_error error;
    assert_int_equal(moed_request_next(r, FOR_EVER, &event, &error), MOED_ERROR_UNAVAILABLE);
    assert_false(error.retry);
    assert_non_null(strstr(error.message, "worker has failed: exit status 3"));
    moed_request_free(r);
    moed_detach(s);
    stand_in_refuse(&worker, false);
    supervisor_stop(&supervisor, thread);
}

/* What the supervisor's answers mean. */
static void test_supervisor_state(void **state)
{
    (void)state;
    static const struct {
        const char *line;
        enum supervisor_state state;
        const char *reason;
    } cases[] = {
        {"deployment\tname=x\tstate=starting\treason=", SUPERVISOR_RESTARTS, ""},
        {"deployment\tname=x\tstate=starting\treason=no memory", SUPERVISOR_STARTS_FAIL,
         "no memory"},
        {"deployment\tname=x\tstate=degraded\treason=no cpuexec", SUPERVISOR_RESTARTS,
         "no cpuexec"},
        {"deployment\tname=x\tstate=ready\treason=", SUPERVISOR_RESTARTS, ""},
        {"deployment\tname=x\tstate=failed\treason=why", SUPERVISOR_GAVE_UP, "why"},
        {"deployment\tname=x\tstate=stopping\treason=", SUPERVISOR_STOPPING, ""},
        {"deployment\tname=x\tstate=unheard of\treason=", SUPERVISOR_NONE, ""},
        {"deployment\tname=x", SUPERVISOR_NONE, ""}, /* memd's own state is not it */
        {"process\tname=x\tstate=ready", SUPERVISOR_NONE, ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct stand_in_supervisor supervisor = {.line = cases[i].line};
        pthread_t thread;
        char reason[64];
        supervisor_start(&supervisor, &thread);
        assert_int_equal(supervisor_state_get(run_dir, LONG_MS, reason, sizeof reason),
                         cases[i].state);
        assert_string_equal(reason, cases[i].reason);
        assert_int_equal(supervisor.asked, 1);
        supervisor_stop(&supervisor, thread);
    }
    char reason[8];
    assert_int_equal(supervisor_state_get(run_dir, LONG_MS, reason, sizeof reason),
                     SUPERVISOR_NONE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_WORKER(test_result_continues),
        WITH_WORKER(test_closes_at_once),
        WITH_WORKER(test_many_continue),
        WITH_WORKER(test_message_continues),
        WITH_WORKER(test_starts_without_worker),
        WITH_WORKER(test_cancels_without_worker),
        WITH_WORKER(test_finished_before_it_is_sent),
        WITH_WORKER(test_two_reloads),
        WITH_WORKER(test_unsent_are_new),
        WITH_WORKER(test_deadly_request),
        WITH_WORKER(test_deployment_restarts),
        WITH_WORKER(test_no_worker_comes),
        WITH_WORKER(test_another_model_comes),
        WITH_WORKER(test_supervisor_gave_up),
        cmocka_unit_test(test_supervisor_state),
    };
    return cmocka_run_group_tests(tests, make_run_dir, remove_run_dir);
}
