/* A worker's frontends with a real engine and real channels, and the other side of these channels;
 * for test_frontends.c and test_frontend_turns.c. */
#ifndef MOED_TESTS_FRONTEND_CLIENT_H
#define MOED_TESTS_FRONTEND_CLIENT_H

#include "engine_bench.h"

#include "ipc/channel.h"
#include "ipc/rpc.h"
#include "worker/frontends/frontends.h"

#include "session.pb-c.h"

#include <math.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Of a client. Its process has a little more. */
enum { MOST_REQUESTS = 8, MOST_WAITING = 5, MOST_BYTES = 420 << 10 };

/* ---- The worker's side ---- */

static struct engine_bench b;
static struct frontends *frontends;

static inline int open_worker(void **state)
{
    struct error e;
    (void)state;
    bench_open(&b, 2);
    bench_start(&b);
    static struct token_list no_ends;
    struct sampling defaults = sampling_usual();
    defaults.repetition_penalty = 1.5f;
    struct frontends_model model = {.map = &b.memory.map,
                                    .sampling = defaults,
                                    .end_tokens = &no_ends,
                                    .tokenizer = b.tokenizer,
                                    .chat_template = "",
                                    .device = "host",
                                    .context = b.context,
                                    .process = {MOST_WAITING + 1, MOST_BYTES * 5 / 4},
                                    .client = {MOST_WAITING, MOST_BYTES},
                                    .most_bytes_all = MOST_BYTES * 3 / 2};
    must(frontends_new(&model, b.engine, &frontends, &e), &e);
    return 0;
}

static inline int close_worker(void **state)
{
    (void)state;
    engine_stop(b.engine);
    frontends_free(frontends);
    bench_close(&b);
    return 0;
}

/* ---- A frontend's side ---- */

struct answer {
    uint32_t tokens[MOST_RECORDED], n_tokens;
    bool forced[MOST_RECORDED]; /* of the tokens */
    int64_t owed;               /* bytes of their text that have not come */
    uint32_t n_done, n_errors;
    uint32_t ended; /* of the client's answers it was this one, from 1 */
    int reason;
    bool retry;
    char message[256];
};

struct client {
    struct channel *channel;
    pthread_mutex_t lock; /* guards the rest */
    pthread_cond_t changed;
    uint32_t events; /* events that use up the window */
    uint32_t n_ended;
    struct answer answers[MOST_REQUESTS]; /* by id */
    bool closed;
};

static inline void take_message(struct client *c, const Moed__V1__FromWorker *m)
{
    struct answer *a = &c->answers[m->id];
    assert_true(m->id < MOST_REQUESTS);
    if (m->body_case == MOED__V1__FROM_WORKER__BODY_TOKENS) {
        c->events++;
        assert_int_equal(m->tokens->n_token_bytes, m->tokens->n_tokens);
        a->owed -= (int64_t)m->tokens->text.len;
        for (size_t i = 0; i < m->tokens->n_tokens; i++) {
            a->forced[a->n_tokens] = m->tokens->forced;
            a->owed += m->tokens->token_bytes[i];
            a->tokens[a->n_tokens++] = m->tokens->tokens[i];
        }
    } else if (m->body_case == MOED__V1__FROM_WORKER__BODY_DONE) {
        a->n_done++;
        a->ended = ++c->n_ended;
        a->reason = (int)m->done->reason;
    } else if (m->body_case == MOED__V1__FROM_WORKER__BODY_ERROR) {
        a->n_errors++;
        snprintf(a->message, sizeof a->message, "%s", m->error->message);
        a->retry = m->error->retry;
    }
}

static inline void on_message(void *arg, const uint8_t *data, size_t len)
{
    struct client *c = arg;
    Moed__V1__FromWorker *m = data ? moed__v1__from_worker__unpack(NULL, len, data) : NULL;
    pthread_mutex_lock(&c->lock);
    c->closed |= !data;
    if (m)
        take_message(c, m);
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
    if (m)
        moed__v1__from_worker__free_unpacked(m, NULL);
}

/* Sends `bytes` of descriptors, or receives them. */
static inline void pass_pairs(int fd, int *fds, size_t bytes, bool send)
{
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(16 * sizeof(int))];
    char byte = 0;
    struct iovec part = {&byte, 1};
    struct msghdr m = {.msg_iov = &part,
                       .msg_iovlen = 1,
                       .msg_control = control,
                       .msg_controllen = CMSG_SPACE(bytes)};
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    *c = (struct cmsghdr){CMSG_LEN(bytes), SOL_SOCKET, SCM_RIGHTS};
    memcpy(CMSG_DATA(c), fds, send ? bytes : 0);
    if ((send ? sendmsg(fd, &m, 0) : recvmsg(fd, &m, MSG_CMSG_CLOEXEC)) != 1)
        _exit(1);
    memcpy(fds, CMSG_DATA(CMSG_FIRSTHDR(&m)), bytes);
}

/* n pairs of sockets, at most 8, which another process made: to the kernel they are its. */
static inline void make_pairs(int (*fds)[2], uint32_t n)
{
    int way[2], status;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, way), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        for (uint32_t i = 0; i < n; i++)
            if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds[i]))
                _exit(1);
        pass_pairs(way[1], fds[0], n * sizeof *fds, true);
        _exit(0);
    }
    pass_pairs(way[0], fds[0], n * sizeof *fds, false);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    close(way[0]);
    close(way[1]);
}

static inline void client_attach_over(struct client *c, const int fds[2])
{
    struct error e;
    struct frontend *frontend;
    *c = (struct client){0};
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->changed, NULL);
    must(frontends_attach(frontends, "test", 1, &frontend, &e), &e);
    frontends_open(frontend, fds[0]);
    must(channel_open(fds[1], NULL, on_message, c, &c->channel, &e), &e);
}

/* In a process of its own. */
static inline void client_attach(struct client *c)
{
    int fds[1][2];
    make_pairs(fds, 1);
    client_attach_over(c, fds[0]);
}

static inline void client_send(struct client *c, Moed__V1__ToWorker *m)
{
    struct error e;
    m->abi = CONTROL_ABI;
    uint8_t *data = malloc(moed__v1__to_worker__get_packed_size(m) + 1);
    assert_non_null(data);
    size_t len = moed__v1__to_worker__pack(m, data);
    must(channel_send(c->channel, data, len, &e), &e);
    free(data);
}

static inline void client_submit(struct client *c, uint64_t id, Moed__V1__Generate *generate)
{
    Moed__V1__ToWorker m = MOED__V1__TO_WORKER__INIT;
    m.id = id;
    m.body_case = MOED__V1__TO_WORKER__BODY_GENERATE;
    m.generate = generate;
    client_send(c, &m);
}

/* Sets a prompt of three tokens. */
static inline void client_submit_short(struct client *c, uint64_t id, Moed__V1__Generate *generate)
{
    static uint32_t prompt[] = {1, 2, 3};
    generate->n_tokens = 3;
    generate->tokens = prompt;
    client_submit(c, id, generate);
}

static inline void client_generate_sampled(struct client *c, uint64_t id, uint32_t max_tokens,
                                           Moed__V1__Sampling *sampling)
{
    uint32_t prompt[GOLDEN_PROMPT];
    FILE *f = fopen(GOLDEN("tokens.txt"), "r");
    for (uint32_t i = 0; i < GOLDEN_PROMPT; i++)
        assert_int_equal(fscanf(f, "%u", &prompt[i]), 1);
    fclose(f);
    Moed__V1__Generate generate = MOED__V1__GENERATE__INIT;
    generate.n_tokens = GOLDEN_PROMPT;
    generate.tokens = prompt;
    generate.max_tokens = max_tokens;
    generate.ignore_end = true;
    generate.sampling = sampling;
    client_submit(c, id, &generate);
}

/* Greedy. max_tokens 0: until the context is full. */
static inline void client_generate(struct client *c, uint64_t id, uint32_t max_tokens)
{
    client_generate_sampled(c, id, max_tokens, NULL);
}

static inline void client_end(struct client *c, uint64_t id, bool complete)
{
    Moed__V1__Cancel cancel = MOED__V1__CANCEL__INIT;
    cancel.complete = complete;
    Moed__V1__ToWorker m = MOED__V1__TO_WORKER__INIT;
    m.id = id;
    m.body_case = MOED__V1__TO_WORKER__BODY_CANCEL;
    m.cancel = &cancel;
    client_send(c, &m);
}

static inline void client_cancel(struct client *c, uint64_t id)
{
    client_end(c, id, false);
}

static inline void client_acknowledge(struct client *c, uint32_t events)
{
    Moed__V1__Ack ack = MOED__V1__ACK__INIT;
    ack.events = events;
    Moed__V1__ToWorker m = MOED__V1__TO_WORKER__INIT;
    m.body_case = MOED__V1__TO_WORKER__BODY_ACK;
    m.ack = &ack;
    client_send(c, &m);
}

/* Waits until *count is at least n; fails after WAIT_S. */
static inline void client_await(struct client *c, const uint32_t *count, uint32_t n)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += WAIT_S;
    int rc = 0;
    pthread_mutex_lock(&c->lock);
    while (*count < n && !rc)
        rc = pthread_cond_timedwait(&c->changed, &c->lock, &until);
    pthread_mutex_unlock(&c->lock);
    assert_int_equal(rc, 0);
}

static inline void check_answer(const struct answer *a, uint32_t n)
{
    struct recorder c = {.n_tokens = a->n_tokens};
    assert_int_equal(a->owed, 0);
    memcpy(c.tokens, a->tokens, sizeof c.tokens);
    check_golden(&c, GREEDY, n);
}

static inline uint32_t count_requests(void)
{
    struct engine_status s = engine_status(b.engine);
    return s.running + s.waiting;
}

static inline uint32_t count_running(void)
{
    return engine_status(b.engine).running;
}

static inline uint32_t count_frontends(void)
{
    return frontends_count(frontends);
}

static inline void await_count(uint32_t (*count)(void), uint32_t n)
{
    uint64_t started = clock_ns();
    while (count() != n && clock_ns() - started < WAIT_S * 1000000000ull)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    assert_int_equal(count(), n);
}

#endif
