/* lib/ipc/channel. Peers that get killed or are another user's are this program started again;
 * peers that break the framing are bare sockets. */
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
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

extern char **environ;

static char directory[] = "/tmp/moed-test-channel-XXXXXX";
static char url[64], path[48];

static void pause_ms(long ms)
{
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL);
}

/* What an end has received: messages carry their number, and are checked for order as they come. */
struct end {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    uint32_t next;   /* number expected */
    uint32_t wrong;  /* messages out of order or damaged */
    uint32_t closed; /* times closed was told */
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

static struct channel *do_listen(struct end *p, int peer_timeout_ms)
{
    struct channel *c = NULL;
    struct error e = {0};
    end_init(p);
    if (channel_listen(url, peer_timeout_ms, on_message, p, &c, &e) != ERROR_OK)
        fail_msg("%s", e.text);
    return c;
}

static struct channel *do_connect(struct end *p)
{
    struct channel *c = NULL;
    struct error e = {0};
    end_init(p);
    if (channel_connect(url, 5000, on_message, p, &c, &e) != ERROR_OK)
        fail_msg("%s", e.text);
    return c;
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
    struct channel *s = do_listen(&server, 5000);
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
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
    assert_clean(&client, MESSAGES, 0); /* who closes is not told */
}

/* Everything queued before the close arrives, though the receiver is slow, and then closed. */
static void test_flush(void **state)
{
    struct end server, client;
    struct channel *s = do_listen(&server, 5000);
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
    struct channel *s = do_listen(&server, 5000);
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

/* The other process: connects, sends three messages, waits to be killed. */
static int peer_process(const char *at)
{
    struct end client;
    struct channel *c = NULL;
    struct error e;
    end_init(&client);
    if (channel_connect(at, 5000, on_message, &client, &c, &e) != ERROR_OK) {
        fprintf(stderr, "%s\n", e.text);
        return 1;
    }
    for (uint32_t i = 0; i < 3; i++)
        send_number(c, i, NULL);
    wait_until(&client, 0, true, 60000);
    channel_close(c, 0);
    return 0;
}

static pid_t start_process(const char *role)
{
    char *argv[] = {"test_channel", (char *)role, url, NULL};
    pid_t pid;
    assert_int_equal(posix_spawn(&pid, "/proc/self/exe", NULL, NULL, argv, environ), 0);
    return pid;
}

/* ---- bare sockets ---- */

static struct sockaddr_un address_of(const char *at)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%s", at);
    return address;
}

static int bare_connect(const char *at)
{
    struct sockaddr_un address = address_of(at);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof address) != 0) {
        close(fd);
        return -1;
    }
    return fd;
}

/* A bare peer that is in: it has read the listener's greeting. */
static int bare_peer(void)
{
    uint32_t greeting;
    int fd = bare_connect(path);
    assert_true(fd >= 0);
    assert_int_equal(recv(fd, &greeting, sizeof greeting, MSG_WAITALL), sizeof greeting);
    return fd;
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
        struct channel *s = do_listen(&server, 5000);
        int fd = bare_peer();
        write_all(fd, frame, frame_number(0, frame)); /* what was right before it is heard */
        write_all(fd, &bad[i], sizeof bad[i]);
        (void)!send(fd, frame, frame_number(1, frame), MSG_NOSIGNAL); /* and what follows is not */
        assert_true(wait_until(&server, 1, true, 2000));
        assert_int_equal(send_number(s, 0, NULL), ERROR_UNAVAILABLE);
        assert_true(at_end(fd, 2000));
        close(fd);
        channel_close(s, 60000);
        assert_clean(&server, 1, 1);
    }
}

/* A peer whose bytes come one by one, and that goes in the middle of a message. */
static void test_slow_writer(void **state)
{
    struct end server;
    uint8_t frame[8 + 1000];
    struct channel *s = do_listen(&server, 5000);
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

/* A peer that reads byte by byte: what is written in parts arrives whole, the largest message too,
 * and no one waits for it. */
static void test_slow_reader(void **state)
{
    struct end server;
    struct channel *s = do_listen(&server, 5000);
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

/* Who stands in line behind the peer is cut off, who comes later finds nobody; the first is not
 * disturbed. */
static void test_second_peer(void **state)
{
    struct end server, client, other;
    struct channel *s = do_listen(&server, 5000);
    struct channel *c = do_connect(&client);
    assert_int_equal(send_number(c, 0, NULL), ERROR_OK);
    assert_true(wait_until(&server, 1, false, 5000));
    struct stat st;
    assert_int_equal(stat(path, &st), -1);
    assert_int_equal(errno, ENOENT);
    struct channel *second = NULL;
    end_init(&other);
    assert_int_equal(channel_connect(url, 50, on_message, &other, &second, NULL),
                     ERROR_UNAVAILABLE);
    assert_int_equal(other.closed, 0);
    assert_int_equal(send_number(c, 1, NULL), ERROR_OK);
    assert_int_equal(send_number(s, 0, NULL), ERROR_OK);
    assert_true(wait_until(&server, 2, false, 5000));
    assert_true(wait_until(&client, 1, false, 5000));
    channel_close(s, 1000);
    assert_true(wait_until(&client, 1, true, 2000));
    channel_close(c, 0);
    assert_clean(&server, 2, 0);
    assert_clean(&client, 1, 1);
}

struct dialler {
    struct end end;
    struct channel *channel;
    enum error_code code;
};

static void *dialler_main(void *arg)
{
    struct dialler *d = arg;
    end_init(&d->end);
    d->code = channel_connect(url, 300, on_message, &d->end, &d->channel, NULL);
    return NULL;
}

/* Several dial at the same moment: one is in, and each knows. */
static void test_race_to_be_the_peer(void **state)
{
    for (int round = 0; round < 10; round++) {
        struct end server;
        struct dialler diallers[4] = {0};
        pthread_t threads[4];
        struct channel *s = do_listen(&server, 5000);
        for (int i = 0; i < 4; i++)
            pthread_create(&threads[i], NULL, dialler_main, &diallers[i]);
        int in = 0;
        for (int i = 0; i < 4; i++) {
            pthread_join(threads[i], NULL);
            in += diallers[i].code == ERROR_OK;
            assert_true(diallers[i].code == ERROR_OK || diallers[i].code == ERROR_UNAVAILABLE);
        }
        assert_int_equal(in, 1);
        for (int i = 0; i < 4; i++)
            if (diallers[i].channel) {
                assert_int_equal(send_number(diallers[i].channel, 0, NULL), ERROR_OK);
                channel_close(diallers[i].channel, 1000);
            }
        assert_true(wait_until(&server, 1, true, 2000));
        channel_close(s, 0);
        assert_clean(&server, 1, 1);
    }
}

/* A listener's place is not taken over, nor is it disturbed; a dead one's is. */
static void test_place_in_use(void **state)
{
    struct end server, client, other;
    struct error e = {0};
    struct sockaddr_un address = address_of(path);
    int dead = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(dead, (struct sockaddr *)&address, sizeof address), 0);
    close(dead); /* its file stays */
    struct channel *s = do_listen(&server, 5000), *c = NULL;
    end_init(&other);
    assert_int_equal(channel_listen(url, 100, on_message, &other, &c, &e), ERROR_EXISTS);
    c = do_connect(&client);
    assert_int_equal(send_number(c, 0, NULL), ERROR_OK);
    channel_close(c, 1000);
    assert_true(wait_until(&server, 1, true, 2000));
    channel_close(s, 0);
    assert_clean(&server, 1, 1);

    int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600); /* never remove what is not ours */
    close(fd);
    assert_int_equal(channel_listen(url, 100, on_message, &other, &c, &e), ERROR_EXISTS);
    assert_int_equal(unlink(path), 0);
    char far[256];
    snprintf(far, sizeof far, "ipc:///%0200d", 0);
    assert_int_equal(channel_listen(far, 100, on_message, &other, &c, &e), ERROR_LIMIT);
    assert_int_equal(channel_connect("tcp://x", 100, on_message, &other, &c, &e), ERROR_USAGE);
}

#define STRANGER_ID 65534

/* Another user's process, which the file's mode would keep out already. 0: it was cut off. */
static int stranger_process(const char *at)
{
    if (setresuid(STRANGER_ID, STRANGER_ID, STRANGER_ID) != 0)
        return 2;
    int fd = bare_connect(at + strlen("ipc://"));
    return fd < 0 ? 3 : at_end(fd, 5000) ? 0 : 4;
}

static void test_stranger(void **state)
{
    if (geteuid() != 0) {
        print_message("only root can play another user\n");
        skip();
    }
    struct end server, client;
    struct channel *s = do_listen(&server, 5000);
    assert_int_equal(chmod(directory, 0755), 0);
    assert_int_equal(chmod(path, 0666), 0);
    int status;
    waitpid(start_process("--stranger"), &status, 0);
    assert_int_equal(chmod(directory, 0700), 0);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    struct channel *c = do_connect(&client); /* the place is still free */
    channel_close(c, 0);
    assert_true(wait_until(&server, 0, true, 2000));
    channel_close(s, 0);
    assert_clean(&server, 0, 1);
}

/* After the peer has gone nobody takes its place. */
static void test_no_successor(void **state)
{
    struct end server, client, next;
    struct channel *s = do_listen(&server, 5000);
    channel_close(do_connect(&client), 0);
    assert_true(wait_until(&server, 0, true, 2000));
    struct channel *c = NULL;
    end_init(&next);
    assert_int_equal(channel_connect(url, 50, on_message, &next, &c, NULL), ERROR_UNAVAILABLE);
    channel_close(s, 0);
    assert_clean(&server, 0, 1);
}

static void test_nobody(void **state)
{
    struct end server, client;
    struct channel *c = NULL;
    struct error e = {0};
    end_init(&client);
    assert_int_equal(channel_connect(url, 50, on_message, &client, &c, &e), ERROR_UNAVAILABLE);
    assert_non_null(strstr(e.text, path));

    uint64_t start = clock_ns();
    struct channel *s = do_listen(&server, 200);
    assert_true(wait_until(&server, 0, true, 2000));
    assert_true(server.closed_ns - start >= 190000000u);
    assert_int_equal(send_number(s, 0, NULL), ERROR_UNAVAILABLE);
    channel_close(s, 1000);
    s = do_listen(&server, 60000); /* closing does not wait for a peer */
    start = clock_ns();
    channel_close(s, 60000);
    assert_true(clock_ns() - start < 5000000000u);
    assert_int_equal(server.closed, 0);
    channel_close(NULL, 0);
}

static void test_peer_killed(void **state)
{
    uint64_t worst = 0;
    for (int i = 0; i < 5; i++) {
        struct end server;
        struct channel *s = do_listen(&server, 20000);
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

/* ---- hanging up with traffic in flight ---- */

#define BUSY_SENDERS 4
#define HANG_UPS     100

struct busy {
    struct channel *channel;
    atomic_bool *stop;
    atomic_uint *told_gone;
};

/* Sends as fast as it can; a peer that has gone is told, and told again. */
static void *busy_main(void *arg)
{
    struct busy *b = arg;
    uint8_t data[300] = {1};
    while (!atomic_load(b->stop))
        if (channel_send(b->channel, data, sizeof data, NULL) == ERROR_UNAVAILABLE)
            atomic_fetch_add(b->told_gone, 1);
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

/* One end hangs up while four threads send to it and it has sent much itself; that arrives, where
 * it was flushed, though there is always something that it has not read. */
static void hang_up_once(bool listener_stays, bool flush)
{
    struct heard heard[2] = {0};
    atomic_uint told_gone = 0;
    atomic_bool stop = false;
    struct channel *ends[2];
    assert_int_equal(channel_listen(url, 5000, count_heard, &heard[0], &ends[0], NULL), 0);
    assert_int_equal(channel_connect(url, 5000, count_heard, &heard[1], &ends[1], NULL), 0);
    int stays = listener_stays ? 0 : 1;
    struct busy busy = {.channel = ends[stays], .stop = &stop, .told_gone = &told_gone};
    pthread_t threads[BUSY_SENDERS];
    for (int i = 0; i < BUSY_SENDERS; i++)
        pthread_create(&threads[i], NULL, busy_main, &busy);
    for (uint32_t i = 0; i < SENT_BEFORE; i++)
        assert_int_equal(send_number(ends[!stays], i, NULL), ERROR_OK);
    uint64_t start = clock_ns();
    channel_close(ends[!stays], flush ? 60000 : 0);
    assert_true(clock_ns() - start < 5000000000u);
    while (atomic_load(&heard[stays].closed) == 0 || atomic_load(&told_gone) == 0)
        assert_true(clock_ns() - start < 10000000000u);
    atomic_store(&stop, true);
    for (int i = 0; i < BUSY_SENDERS; i++)
        pthread_join(threads[i], NULL);
    start = clock_ns();
    channel_close(ends[stays], 60000); /* nothing to wait for */
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

/* Closing while the callback runs waits for it, flushes meanwhile, and no other one follows. */
static void test_close_during_callback(void **state)
{
    struct end server, client;
    struct channel *s = do_listen(&server, 5000), *c = do_connect(&client);
    pthread_mutex_lock(&server.lock);
    server.hold = true;
    pthread_mutex_unlock(&server.lock);
    for (uint32_t i = 0; i < 10; i++)
        assert_int_equal(send_number(c, i, NULL), ERROR_OK);
    for (uint32_t i = 0; i < MESSAGES; i++) /* more than the socket takes */
        assert_int_equal(send_number(s, i, NULL), ERROR_OK);
    pause_ms(50); /* the callback has begun, most likely */
    struct closing closing = {.channel = s};
    pthread_t thread;
    pthread_create(&thread, NULL, closing_main, &closing);
    assert_true(wait_until(&client, MESSAGES, false, 5000)); /* though the callback is held */
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
        return peer_process(argv[2]);
    if (argc == 3 && strcmp(argv[1], "--stranger") == 0)
        return stranger_process(argv[2]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_both_directions),
        cmocka_unit_test(test_flush),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_bad_lengths),
        cmocka_unit_test(test_slow_writer),
        cmocka_unit_test(test_slow_reader),
        cmocka_unit_test(test_second_peer),
        cmocka_unit_test(test_race_to_be_the_peer),
        cmocka_unit_test(test_place_in_use),
        cmocka_unit_test(test_stranger),
        cmocka_unit_test(test_no_successor),
        cmocka_unit_test(test_nobody),
        cmocka_unit_test(test_peer_killed),
        cmocka_unit_test(test_close_during_callback),
        cmocka_unit_test(test_hang_up_under_traffic),
    };
    if (mkdtemp(directory) == NULL)
        return 1;
    snprintf(path, sizeof path, "%s/c", directory);
    snprintf(url, sizeof url, "ipc://%s", path);
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(path);
    rmdir(directory);
    return rc;
}
