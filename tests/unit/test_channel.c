/* lib/ipc/channel. Peers that get killed are this program started again; peers that break the
 * framing are bare sockets. */
#include "ipc/channel.h"

#include "base/clock.h"
#include "ipc/rpc.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

extern char **environ;

static int other_end; /* of the last channel of do_listen: for do_connect or bare_peer */

static void pause_ms(long ms)
{
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL);
}

/* The messages that an end received. They carry their number, so the end checks their order on
 * arrival. */
struct end {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    uint32_t next;   /* number expected */
    uint32_t wrong;  /* messages out of order or damaged */
    uint32_t closed; /* times that the end was reported */
    uint32_t late;   /* callbacks after closed */
    uint64_t closed_ns;
    bool hold; /* the callback waits while it is set */
};

static void end_init(struct end *p)
{
    *p = (struct end){.hold = false};
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->changed, NULL);
}

static void on_message(void *arg, const uint8_t *data, size_t len)
{
    struct end *p = arg;
    pthread_mutex_lock(&p->lock);
    while (p->hold)
        pthread_cond_wait(&p->changed, &p->lock);
    if (p->closed > 0)
        p->late++;
    if (data == NULL) {
        p->closed++;
        p->closed_ns = clock_ns();
    } else {
        uint32_t number = UINT32_MAX;
        if (len >= sizeof number)
            memcpy(&number, data, sizeof number);
        bool intact = number == p->next && len == sizeof number + number % 1000;
        for (size_t i = sizeof number; intact && i < len; i++)
            intact = data[i] == (uint8_t)(number + i);
        p->wrong += !intact;
        p->next++;
    }
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->lock);
}

static enum error_code send_number(struct channel *c, uint32_t number, struct error *e)
{
    uint8_t data[4 + 1000];
    size_t len = 4 + number % 1000;
    memcpy(data, &number, 4);
    for (size_t i = 4; i < len; i++)
        data[i] = (uint8_t)(number + i);
    return channel_send(c, data, len, e);
}

static bool wait_until(struct end *p, uint32_t count, bool closed, int timeout_ms)
{
    uint64_t end_ns = clock_ns() + (uint64_t)timeout_ms * 1000000u;
    bool ok = false;
    while (!ok && clock_ns() < end_ns) {
        pthread_mutex_lock(&p->lock);
        ok = p->next >= count && (!closed || p->closed > 0);
        pthread_mutex_unlock(&p->lock);
        if (!ok)
            pause_ms(1);
    }
    return ok;
}

static struct channel *open_end(struct end *p, int fd, struct channel_group *group)
{
    struct channel *c = NULL;
    struct error e = {0};
    end_init(p);
    if (channel_open(fd, group, on_message, p, &c, &e) != ERROR_OK)
        fail_msg("%s", e.text);
    return c;
}

/* Channels in a group, as a server's are. */
static struct channel_group group = {.limit = 1u << 30};

static struct channel *do_listen(struct end *p)
{
    int fds[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    other_end = fds[1];
    return open_end(p, fds[0], &group);
}

static struct channel *do_connect(struct end *p)
{
    return open_end(p, other_end, NULL);
}

static void assert_clean(const struct end *p, uint32_t count, uint32_t closed)
{
    assert_int_equal(p->wrong, 0);
    assert_int_equal(p->late, 0);
    assert_int_equal(p->next, count);
    assert_int_equal(p->closed, closed);
}

#define MESSAGES 20000

static void *sender_main(void *arg)
{
    struct channel *c = arg;
    for (uint32_t i = 0; i < MESSAGES; i++)
        if (send_number(c, i, NULL) != ERROR_OK)
            return arg;
    return NULL;
}

static void test_both_directions(void **state)
{
    struct end server, client;
    struct channel *s = do_listen(&server);
    struct channel *c = do_connect(&client);
    pthread_t threads[2];
    void *failed[2];
    pthread_create(&threads[0], NULL, sender_main, s);
    pthread_create(&threads[1], NULL, sender_main, c);
    pthread_join(threads[0], &failed[0]);
    pthread_join(threads[1], &failed[1]);
    assert_null(failed[0]);
    assert_null(failed[1]);
    assert_true(wait_until(&server, MESSAGES, false, 60000));
    assert_true(wait_until(&client, MESSAGES, false, 60000));
    channel_close(c, 0);
    assert_true(wait_until(&server, MESSAGES, true, 2000));
    assert_int_equal(send_number(s, 0, NULL), ERROR_UNAVAILABLE);
    channel_close(s, 0);
    assert_clean(&server, MESSAGES, 1);
    assert_clean(&client, MESSAGES, 0); /* the end that closes gets no report */
}

/* Everything queued before the close arrives, though the receiver is slow, and then the end. */
static void test_flush(void **state)
{
    struct end server, client;
    struct channel *s = do_listen(&server);
    struct channel *c = do_connect(&client);
    for (uint32_t i = 0; i < MESSAGES; i++)
        assert_int_equal(send_number(c, i, NULL), ERROR_OK);
    channel_close(c, 30000);
    assert_true(wait_until(&server, MESSAGES, true, 30000));
    channel_close(s, 0);
    assert_clean(&server, MESSAGES, 1);
}

static void test_limits(void **state)
{
    struct end server, client;
    struct channel *s = do_listen(&server);
    struct channel *c = do_connect(&client);
    struct error e = {0};
    assert_int_equal(channel_send(c, (const uint8_t *)"", 0, &e), ERROR_USAGE);
    uint8_t *big = calloc(1, RPC_MESSAGE_BYTES + 1);
    assert_int_equal(channel_send(c, big, RPC_MESSAGE_BYTES + 1, &e), ERROR_LIMIT);

    pthread_mutex_lock(&server.lock);
    server.hold = true; /* a peer that does not read */
    pthread_mutex_unlock(&server.lock);
    uint64_t sent = 0, slowest = 0;
    enum error_code code = ERROR_OK;
    while (code == ERROR_OK && sent < 8ull * CHANNEL_QUEUE_BYTES) {
        uint64_t start = clock_ns();
        code = channel_send(c, big, 1u << 20, &e);
        uint64_t took = clock_ns() - start;
        slowest = took > slowest ? took : slowest;
        sent += 1u << 20;
    }
    free(big);
    assert_int_equal(code, ERROR_LIMIT);
    assert_true(sent > CHANNEL_QUEUE_BYTES / 2);
    assert_true(slowest < 1000000000u); /* never waits for the peer */

    pthread_mutex_lock(&server.lock);
    server.hold = false;
    pthread_cond_broadcast(&server.changed);
    pthread_mutex_unlock(&server.lock);
    assert_true(wait_until(&server, (uint32_t)(sent >> 20) - 1, false, 20000));
    assert_int_equal(send_number(c, 5, &e), ERROR_OK); /* usable again */
    channel_close(c, 5000);
    assert_true(wait_until(&server, (uint32_t)(sent >> 20), true, 5000));
    channel_close(s, 0);
}

/* The other process: sends three messages, waits to be killed. */
static int peer_process(int fd)
{
    struct end client;
    struct channel *c = open_end(&client, fd, NULL);
    for (uint32_t i = 0; i < 3; i++)
        send_number(c, i, NULL);
    wait_until(&client, 0, true, 60000);
    channel_close(c, 0);
    return 0;
}

/* Started with the other end. */
static pid_t start_process(const char *role)
{
    char number[16];
    char *argv[] = {"test_channel", (char *)role, number, NULL};
    pid_t pid;
    assert_int_equal(fcntl(other_end, F_SETFD, 0), 0);
    snprintf(number, sizeof number, "%d", other_end);
    assert_int_equal(posix_spawn(&pid, "/proc/self/exe", NULL, NULL, argv, environ), 0);
    close(other_end);
    return pid;
}

/* ---- bare sockets ---- */

static int bare_peer(void)
{
    return other_end;
}

static void write_all(int fd, const void *data, size_t len)
{
    assert_int_equal(send(fd, data, len, MSG_NOSIGNAL), (ssize_t)len);
}

/* Message `number` as send_number makes it, with its length before it. */
static size_t frame_number(uint32_t number, uint8_t frame[8 + 1000])
{
    uint32_t len = 4 + number % 1000;
    memcpy(frame, &len, 4);
    memcpy(frame + 4, &number, 4);
    for (uint32_t i = 4; i < len; i++)
        frame[4 + i] = (uint8_t)(number + i);
    return 4 + len;
}

static bool at_end(int fd, int timeout_ms)
{
    uint8_t rest[64];
    struct pollfd p = {.fd = fd, .events = POLLIN};
    return poll(&p, 1, timeout_ms) == 1 && recv(fd, rest, sizeof rest, MSG_DONTWAIT) <= 0;
}

static void test_bad_lengths(void **state)
{
    const uint32_t bad[] = {0, RPC_MESSAGE_BYTES + 1, UINT32_MAX};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct end server;
        uint8_t frame[8 + 1000];
        struct channel *s = do_listen(&server);
        int fd = bare_peer();
        write_all(fd, frame, frame_number(0, frame)); /* arrives: before the invalid one */
        write_all(fd, &bad[i], sizeof bad[i]);
        (void)!send(fd, frame, frame_number(1, frame), MSG_NOSIGNAL); /* later messages do not */
        assert_true(wait_until(&server, 1, true, 2000));
        assert_int_equal(send_number(s, 0, NULL), ERROR_UNAVAILABLE);
        assert_true(at_end(fd, 2000));
        close(fd);
        channel_close(s, 60000);
        assert_clean(&server, 1, 1);
    }
}

/* A peer that sends byte by byte, and leaves in the middle of a message. */
static void test_slow_writer(void **state)
{
    struct end server;
    uint8_t frame[8 + 1000];
    struct channel *s = do_listen(&server);
    int fd = bare_peer();
    for (uint32_t number = 0; number < 20; number++) {
        size_t len = frame_number(number, frame);
        for (size_t i = 0; i < len; i++)
            write_all(fd, frame + i, 1);
    }
    assert_true(wait_until(&server, 20, false, 5000));
    write_all(fd, frame, frame_number(20, frame) - 1);
    assert_false(wait_until(&server, 21, false, 50));
    close(fd);
    assert_true(wait_until(&server, 20, true, 2000));
    channel_close(s, 0);
    assert_clean(&server, 20, 1);
}

/* A peer that reads byte by byte: messages written in parts arrive whole, the largest too, and the
 * sender does not wait for the peer. */
static void test_slow_reader(void **state)
{
    struct end server;
    struct channel *s = do_listen(&server);
    int fd = bare_peer();
    uint8_t *big = malloc(RPC_MESSAGE_BYTES), *got = malloc(4 + RPC_MESSAGE_BYTES);
    for (size_t i = 0; i < RPC_MESSAGE_BYTES; i++)
        big[i] = (uint8_t)(i * 31 >> 3);
    assert_int_equal(channel_send(s, big, RPC_MESSAGE_BYTES, NULL), ERROR_OK);
    size_t len = 0;
    for (; len < 100; len++)
        assert_int_equal(recv(fd, got + len, 1, 0), 1);
    while (len < 4 + RPC_MESSAGE_BYTES) {
        ssize_t n = recv(fd, got + len, 4 + RPC_MESSAGE_BYTES - len < 5003 ? 1 : 5003, 0);
        assert_true(n > 0);
        len += (size_t)n;
    }
    uint32_t prefix;
    memcpy(&prefix, got, 4);
    assert_int_equal(prefix, RPC_MESSAGE_BYTES);
    assert_memory_equal(got + 4, big, RPC_MESSAGE_BYTES);
    free(got);

    /* It reads no more: closing takes the time allowed and no longer. */
    for (int i = 0; i < 4; i++)
        assert_int_equal(channel_send(s, big, RPC_MESSAGE_BYTES, NULL), ERROR_OK);
    free(big);
    uint64_t start = clock_ns();
    channel_close(s, 200);
    uint64_t took = clock_ns() - start;
    assert_true(took >= 190000000u && took < 2000000000u);
    close(fd);
    assert_clean(&server, 0, 0);
}

static void test_peer_killed(void **state)
{
    uint64_t worst = 0;
    for (int i = 0; i < 5; i++) {
        struct end server;
        struct channel *s = do_listen(&server);
        pid_t pid = start_process("--peer");
        assert_true(wait_until(&server, 3, false, 20000));
        assert_false(wait_until(&server, 0, true, 20));
        uint64_t start = clock_ns();
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        assert_true(wait_until(&server, 3, true, 2000));
        uint64_t took = server.closed_ns - start;
        worst = took > worst ? took : worst;
        channel_close(s, 1000);
        assert_clean(&server, 3, 1);
    }
    print_message("noticed a killed peer after at most %.1f ms\n", (double)worst * 1e-6);
}

/* ---- peers that do not read ---- */

#define ANSWER_BYTES (64u << 10)

struct asked {
    struct channel *channel;
    atomic_uint questions;
};

/* Each message is a question with a long answer. */
static void answer_question(void *arg, const uint8_t *data, size_t len)
{
    static uint8_t answer[ANSWER_BYTES];
    struct asked *a = arg;
    if (!data)
        return;
    atomic_fetch_add(&a->questions, 1);
    channel_send(a->channel, answer, sizeof answer, NULL);
}

/* A peer that asks and does not read: it gets as many answers as the socket holds and then some,
 * and the rest once it reads. */
static void test_asks_without_reading(void **state)
{
    enum { QUESTIONS = 400 };
    struct asked asked = {0};
    int fds[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    assert_int_equal(channel_open(fds[0], &group, answer_question, &asked, &asked.channel, NULL),
                     0);
    uint32_t questions[QUESTIONS][2]; /* written at once: a socket holds fewer small writes */
    for (int i = 0; i < QUESTIONS; i++)
        memcpy(questions[i], (const uint32_t[2]){4, 7}, sizeof questions[i]);
    write_all(fds[1], questions, sizeof questions);
    unsigned before = UINT32_MAX;
    for (unsigned now; (now = atomic_load(&asked.questions)) != before || now == 0; before = now)
        pause_ms(100);
    assert_true((before - 1) * ANSWER_BYTES <= 2 * CHANNEL_PAUSE_BYTES);
    assert_true(atomic_load(&group.bytes) <= 2 * CHANNEL_PAUSE_BYTES);
    static uint8_t block[ANSWER_BYTES];
    for (uint64_t left = (uint64_t)QUESTIONS * (4 + ANSWER_BYTES); left > 0;) {
        ssize_t n = recv(fds[1], block, left < sizeof block ? left : sizeof block, 0);
        assert_true(n > 0);
        left -= (uint64_t)n;
    }
    assert_int_equal(atomic_load(&asked.questions), QUESTIONS);
    close(fds[1]);
    channel_close(asked.channel, 0);
}

/* Three peers that do not read use up what all may have; a fourth that reads does not notice. */
static void test_memory_of_all(void **state)
{
    static struct channel_group small = {.limit = 8u << 20};
    struct end ends[4], client;
    struct channel *c[4], *reading;
    uint8_t *big = calloc(1, 1u << 20);
    int others[3];
    for (int i = 0; i < 4; i++) {
        int fds[2];
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
        c[i] = open_end(&ends[i], fds[0], &small);
        if (i < 3)
            others[i] = fds[1];
        else
            reading = open_end(&client, fds[1], NULL);
    }
    int taken = 0, refused = 0;
    for (int i = 0; i < 60; i++)
        if (channel_send(c[i % 3], big, 1u << 20, NULL) == ERROR_OK)
            taken++;
        else
            refused++;
    assert_true(taken >= 6 && refused > 0);
    assert_true(atomic_load(&small.bytes) <= 2 * small.limit);
    for (uint32_t i = 0; i < 100; i++)
        assert_int_equal(send_number(c[3], i, NULL), ERROR_OK);
    assert_true(wait_until(&client, 100, false, 5000));
    for (int i = 0; i < 4; i++)
        channel_close(c[i], 0);
    for (int i = 0; i < 3; i++)
        close(others[i]);
    assert_true(wait_until(&client, 100, true, 5000));
    channel_close(reading, 0);
    free(big);
    assert_int_equal(atomic_load(&small.bytes), 0);
    assert_int_equal(atomic_load(&small.channels), 0);
    assert_clean(&client, 100, 1);
}

/* ---- hanging up with traffic in flight ---- */

#define BUSY_SENDERS 4
#define HANG_UPS     100

struct busy {
    struct channel *channel;
    atomic_bool *stop;
    atomic_uint *reported_gone;
};

/* Sends as fast as it can; every send reports a peer that has gone. */
static void *busy_main(void *arg)
{
    struct busy *b = arg;
    uint8_t data[300] = {1};
    while (!atomic_load(b->stop))
        if (channel_send(b->channel, data, sizeof data, NULL) == ERROR_UNAVAILABLE)
            atomic_fetch_add(b->reported_gone, 1);
    return NULL;
}

struct heard {
    atomic_uint messages, closed;
};

static void count_heard(void *arg, const uint8_t *data, size_t len)
{
    struct heard *heard = arg;
    atomic_fetch_add(data ? &heard->messages : &heard->closed, 1);
}

#define SENT_BEFORE 1000

/* One end closes while four threads send to it, and after it has sent much itself. If it flushed,
 * its messages arrive, although it always has unread messages. */
static void hang_up_once(bool listener_stays, bool flush)
{
    struct heard heard[2] = {0};
    atomic_uint reported_gone = 0;
    atomic_bool stop = false;
    struct channel *ends[2];
    int fds[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    assert_int_equal(channel_open(fds[0], NULL, count_heard, &heard[0], &ends[0], NULL), 0);
    assert_int_equal(channel_open(fds[1], NULL, count_heard, &heard[1], &ends[1], NULL), 0);
    int stays = listener_stays ? 0 : 1;
    struct busy busy = {.channel = ends[stays], .stop = &stop, .reported_gone = &reported_gone};
    pthread_t threads[BUSY_SENDERS];
    for (int i = 0; i < BUSY_SENDERS; i++)
        pthread_create(&threads[i], NULL, busy_main, &busy);
    for (uint32_t i = 0; i < SENT_BEFORE; i++)
        assert_int_equal(send_number(ends[!stays], i, NULL), ERROR_OK);
    uint64_t start = clock_ns();
    channel_close(ends[!stays], flush ? 60000 : 0);
    assert_true(clock_ns() - start < 5000000000u);
    while (atomic_load(&heard[stays].closed) == 0 || atomic_load(&reported_gone) == 0)
        assert_true(clock_ns() - start < 10000000000u);
    atomic_store(&stop, true);
    for (int i = 0; i < BUSY_SENDERS; i++)
        pthread_join(threads[i], NULL);
    start = clock_ns();
    channel_close(ends[stays], 60000); /* no wait */
    assert_true(clock_ns() - start < 5000000000u);
    assert_int_equal(atomic_load(&heard[stays].closed), 1);
    if (flush)
        assert_int_equal(atomic_load(&heard[stays].messages), SENT_BEFORE);
    assert_int_equal(atomic_load(&heard[!stays].closed), 0);
}

static void test_hang_up_under_traffic(void **state)
{
    for (int i = 0; i < HANG_UPS; i++)
        hang_up_once(i % 2 == 0, i / 2 % 2 == 0);
}

struct closing {
    struct channel *channel;
    atomic_bool done;
};

static void *closing_main(void *arg)
{
    struct closing *c = arg;
    channel_close(c->channel, 5000);
    atomic_store(&c->done, true);
    return NULL;
}

/* Closing waits for a running callback, flushes at the same time, and no other callback follows. */
static void test_close_during_callback(void **state)
{
    struct end server, client;
    struct channel *s = do_listen(&server), *c = do_connect(&client);
    pthread_mutex_lock(&server.lock);
    server.hold = true;
    pthread_mutex_unlock(&server.lock);
    for (uint32_t i = 0; i < 10; i++)
        assert_int_equal(send_number(c, i, NULL), ERROR_OK);
    for (uint32_t i = 0; i < MESSAGES; i++) /* more than the socket's buffer */
        assert_int_equal(send_number(s, i, NULL), ERROR_OK);
    pause_ms(50); /* the callback has begun, most likely */
    struct closing closing = {.channel = s};
    pthread_t thread;
    pthread_create(&thread, NULL, closing_main, &closing);
    assert_true(wait_until(&client, MESSAGES, false, 5000)); /* although the callback still waits */
    pause_ms(50);
    assert_false(atomic_load(&closing.done));
    pthread_mutex_lock(&server.lock);
    server.hold = false;
    pthread_cond_broadcast(&server.changed);
    pthread_mutex_unlock(&server.lock);
    pthread_join(thread, NULL);
    uint32_t heard = server.next;
    assert_true(wait_until(&client, MESSAGES, true, 2000));
    pause_ms(20);
    assert_int_equal(server.next, heard);
    assert_int_equal(server.closed, 0);
    channel_close(c, 0);
    assert_clean(&client, MESSAGES, 1);
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "--peer") == 0)
        return peer_process(atoi(argv[2]));
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_both_directions),
        cmocka_unit_test(test_flush),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_bad_lengths),
        cmocka_unit_test(test_slow_writer),
        cmocka_unit_test(test_slow_reader),
        cmocka_unit_test(test_peer_killed),
        cmocka_unit_test(test_asks_without_reading),
        cmocka_unit_test(test_memory_of_all),
        cmocka_unit_test(test_close_during_callback),
        cmocka_unit_test(test_hang_up_under_traffic),
    };
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    return rc || atomic_load(&group.bytes) || atomic_load(&group.channels); /* all is returned */
}
