/* lib/ipc/lease, its watch, listener and offers: descriptors that travel, peers that die, wrong
 * messages. */
#include "ipc/lease.h"

#include "base/clock.h"
#include "ipc/lease_listener.h"
#include "ipc/lease_offer.h"
#include "ipc/watch.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#include "process_counts.h"

static char directory[] = "/tmp/moed-test-lease-XXXXXX";
static char path[64];

static void pause_ms(long ms)
{
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL);
}

static int do_listen(void)
{
    int fd = -1;
    struct error e = {0};
    if (lease_listen(path, &fd, &e) != ERROR_OK)
        fail_msg("%s", e.text);
    return fd;
}

/* Both ends of a connection within this process. */
static void make_pair(int listener, int *client, int *server)
{
    struct lease_peer peer;
    assert_int_equal(lease_connect(path, 1000, client, NULL), ERROR_OK);
    assert_int_equal(lease_accept(listener, server, &peer, NULL), ERROR_OK);
    assert_int_equal(peer.pid, getpid());
    assert_int_equal(peer.uid, geteuid());
    if (peer.pidfd >= 0) {
        assert_true(fcntl(peer.pidfd, F_GETFD) & FD_CLOEXEC);
        close(peer.pidfd);
    }
}

static void test_listen(void **state)
{
    int fd = do_listen(), second = -1;
    struct stat st;
    struct error e = {0};
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_int_equal(lease_listen(path, &second, &e), ERROR_EXISTS);
    assert_non_null(strstr(e.text, path));
    assert_int_equal(access(path, F_OK), 0);
    close(fd);
    fd = do_listen(); /* no process listens on the old file */
    int client, server;
    struct lease_peer peer;
    assert_int_equal(lease_connect(path, 0, &client, &e), ERROR_OK);
    assert_int_equal(lease_accept(fd, &server, &peer, &e), ERROR_OK);
    close(peer.pidfd);
    close(client);
    close(server);
    close(fd);
    unlink(path);

    int file =
        open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600); /* not a socket: not ours to remove */
    close(file);
    assert_int_equal(lease_listen(path, &fd, &e), ERROR_EXISTS);
    assert_int_equal(access(path, F_OK), 0);
    unlink(path);

    char lengthy[200];
    memset(lengthy, 'x', sizeof lengthy - 1);
    lengthy[sizeof lengthy - 1] = 0;
    assert_int_equal(lease_listen(lengthy, &fd, &e), ERROR_LIMIT);
    assert_int_equal(lease_connect(lengthy, 0, &fd, &e), ERROR_LIMIT);
}

static void *late_listener_main(void *arg)
{
    pause_ms(100);
    *(int *)arg = do_listen();
    return NULL;
}

static void test_connect_waits(void **state)
{
    int client = -1, listener = -1;
    struct error e = {0};
    uint64_t start = clock_ns();
    assert_int_equal(lease_connect(path, 100, &client, &e), ERROR_UNAVAILABLE);
    assert_true(clock_ns() - start >= 100000000u);
    assert_non_null(strstr(e.text, path));
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, late_listener_main, &listener), 0);
    assert_int_equal(lease_connect(path, 10000, &client, &e), ERROR_OK);
    pthread_join(thread, NULL);
    close(client);
    close(listener);
}

static void test_descriptors_travel(void **state)
{
    int listener = do_listen(), client, server, received[LEASE_MAX_FDS];
    make_pair(listener, &client, &server);
    struct shm s = {0}, mapped = {0};
    assert_int_equal(shm_create("moed-test-lease", 4096, &s, NULL), ERROR_OK);
    strcpy(s.base, "through the socket");
    struct lease_message m = {.kind = 7, .value = {1, 2, 3, 4, 5, 6, 7, 8, UINT64_MAX}}, in;
    unsigned n = 99;
    assert_int_equal(lease_send(client, &m, &s.fd, 1, NULL), ERROR_OK);
    assert_int_equal(lease_receive(server, &in, received, LEASE_MAX_FDS, &n, 1000, NULL), ERROR_OK);
    assert_int_equal(n, 1);
    assert_int_equal(in.magic, LEASE_MAGIC);
    assert_int_equal(in.kind, 7);
    assert_memory_equal(in.value, m.value, sizeof m.value);
    assert_true(fcntl(received[0], F_GETFD) & FD_CLOEXEC);
    assert_int_equal(shm_map(received[0], false, 4096, &mapped, NULL), ERROR_OK);
    assert_string_equal(mapped.base, "through the socket");
    shm_close(&mapped);

    /* none and the most, the other way */
    const int nine[] = {s.fd, s.fd, s.fd, s.fd, s.fd, s.fd, s.fd, s.fd, s.fd};
    _Static_assert(sizeof nine == (LEASE_MAX_FDS + 1) * sizeof(int), "one more than go");
    assert_int_equal(lease_send(server, &m, NULL, 0, NULL), ERROR_OK);
    assert_int_equal(lease_send(server, &m, nine, LEASE_MAX_FDS, NULL), ERROR_OK);
    assert_int_equal(lease_send(server, &m, nine, LEASE_MAX_FDS + 1, NULL), ERROR_USAGE);
    assert_int_equal(lease_receive(client, &in, NULL, 0, NULL, 1000, NULL), ERROR_OK);
    int before = open_fds();
    assert_int_equal(lease_receive(client, &in, received, LEASE_MAX_FDS, &n, 1000, NULL), ERROR_OK);
    assert_int_equal(n, LEASE_MAX_FDS);
    assert_int_equal(open_fds(), before + LEASE_MAX_FDS);
    for (unsigned i = 0; i < n; i++)
        close(received[i]);
    shm_close(&s);
    close(client);
    close(server);
    close(listener);
}

/* sendmsg as a misbehaving peer does it. */
static void send_raw(int fd, const void *data, size_t len, unsigned n_fds)
{
    int fds[16];
    for (unsigned i = 0; i < n_fds; i++)
        fds[i] = 0;
    struct iovec iov = {.iov_base = (void *)data, .iov_len = len};
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof fds)];
    } control = {0};
    struct msghdr h = {.msg_iov = &iov, .msg_iovlen = 1};
    if (n_fds > 0) {
        h.msg_control = control.bytes;
        h.msg_controllen = CMSG_SPACE(n_fds * sizeof(int));
        struct cmsghdr *c = CMSG_FIRSTHDR(&h);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(n_fds * sizeof(int));
        memcpy(CMSG_DATA(c), fds, n_fds * sizeof(int));
    }
    assert_int_equal(sendmsg(fd, &h, MSG_NOSIGNAL), (ssize_t)len);
}

/* Every wrong message is refused, its descriptors are closed, and what follows is still understood.
 */
static void test_wrong_messages(void **state)
{
    int listener = do_listen(), client, server, fds[LEASE_MAX_FDS];
    make_pair(listener, &client, &server);
    struct lease_message good = {.magic = LEASE_MAGIC, .kind = 1}, bad = {.magic = 0x12345678}, in;
    uint8_t big[sizeof good + 32] = {0};
    memcpy(big, &good, sizeof good);
    const struct {
        const void *data;
        size_t len;
        unsigned n_fds, max_fds;
    } cases[] = {
        {&bad, sizeof bad, 0, 4},       {&bad, sizeof bad, 3, 4},
        {&good, sizeof good - 1, 2, 4}, {&good, 1, 1, 4},
        {big, sizeof big, 0, 4},        {big, sizeof big, 4, 4},
        {big, sizeof good + 1, 1, 4},   {&good, sizeof good, 5, 4},
        {&good, sizeof good, 16, 4},    {&good, sizeof good, 2, 1},
        {&good, sizeof good, 1, 0},
    };
    int before = open_fds();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        unsigned n = 99;
        struct error e = {0};
        send_raw(client, cases[i].data, cases[i].len, cases[i].n_fds);
        assert_int_equal(lease_receive(server, &in, fds, cases[i].max_fds, &n, 1000, &e),
                         ERROR_PROTOCOL);
        assert_int_equal(n, 99);
        assert_int_equal(open_fds(), before);
        assert_int_not_equal(e.text[0], 0);
    }
    assert_int_equal(lease_send(client, &good, NULL, 0, NULL), ERROR_OK);
    assert_int_equal(lease_receive(server, &in, fds, 4, NULL, 1000, NULL), ERROR_OK);
    close(client);
    close(server);
    close(listener);
}

static void test_timeout_and_end(void **state)
{
    int listener = do_listen(), client, server;
    make_pair(listener, &client, &server);
    struct lease_message m = {.kind = 3}, in;
    uint64_t start = clock_ns();
    assert_int_equal(lease_receive(server, &in, NULL, 0, NULL, 50, NULL), ERROR_TIMEOUT);
    assert_true(clock_ns() - start >= 50000000u);
    assert_int_equal(lease_receive(server, &in, NULL, 0, NULL, 0, NULL), ERROR_TIMEOUT);
    assert_int_equal(lease_send(client, &m, NULL, 0, NULL), ERROR_OK);
    close(client); /* what was sent before comes first */
    assert_int_equal(lease_receive(server, &in, NULL, 0, NULL, 1000, NULL), ERROR_OK);
    assert_int_equal(in.kind, 3);
    assert_int_equal(lease_receive(server, &in, NULL, 0, NULL, 1000, NULL), ERROR_UNAVAILABLE);
    assert_int_equal(lease_send(server, &m, NULL, 0, NULL), ERROR_UNAVAILABLE); /* and no SIGPIPE */
    close(server);
    close(listener);
}

static pid_t start_client(void)
{
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid != 0)
        return pid;
    int fd;
    struct lease_message m = {.kind = 1};
    if (lease_connect(path, 5000, &fd, NULL) != ERROR_OK ||
        lease_send(fd, &m, NULL, 0, NULL) != ERROR_OK)
        _exit(1);
    for (;;)
        pause();
}

static void test_peer_killed(void **state)
{
    int listener = do_listen();
    uint64_t worst = 0;
    for (int i = 0; i < 10; i++) {
        pid_t pid = start_client();
        int fd;
        struct lease_peer peer;
        struct lease_message in;
        assert_int_equal(lease_accept(listener, &fd, &peer, NULL), ERROR_OK);
        assert_int_equal(peer.pid, pid);
        assert_int_equal(lease_receive(fd, &in, NULL, 0, NULL, 5000, NULL), ERROR_OK);
        struct pollfd p = {.fd = peer.pidfd, .events = POLLIN};
        if (peer.pidfd >= 0)
            assert_int_equal(poll(&p, 1, 0), 0); /* alive */
        uint64_t start = clock_ns();
        kill(pid, SIGKILL);
        assert_int_equal(lease_receive(fd, &in, NULL, 0, NULL, 10000, NULL), ERROR_UNAVAILABLE);
        uint64_t took = clock_ns() - start;
        worst = took > worst ? took : worst;
        if (peer.pidfd >= 0)
            assert_int_equal(poll(&p, 1, 5000), 1); /* the process itself is gone */
        waitpid(pid, NULL, 0);
        close(peer.pidfd);
        close(fd);
    }
    close(listener);
    print_message("noticed a killed peer after at most %.2f ms\n", (double)worst * 1e-6);
    assert_true(worst < 2000000000u);
}

static int connect_bare(int fd)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    memcpy(a.sun_path, path, strlen(path) + 1);
    return connect(fd, (struct sockaddr *)&a, sizeof a);
}

static void test_other_user_refused(void **state)
{
    if (geteuid() != 0) {
        print_message("skipped: needs root to become another user\n");
        skip();
    }
    int listener = do_listen();
    /* open the doors that would stop the other user before the check that is tested */
    assert_int_equal(chmod(directory, 0755), 0);
    assert_int_equal(chmod(path, 0666), 0);
    pid_t pid = fork();
    if (pid == 0) {
        int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);
        char byte;
        if (setgid(65534) != 0 || setuid(65534) != 0 || connect_bare(fd) != 0)
            _exit(1);
        _exit(read(fd, &byte, 1) == 0 ? 0 : 2); /* put out */
    }
    int fd = -1, status;
    struct lease_peer peer;
    struct error e = {0};
    assert_int_equal(lease_accept(listener, &fd, &peer, &e), ERROR_PROTOCOL);
    assert_non_null(strstr(e.text, "65534"));
    waitpid(pid, &status, 0);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    chmod(directory, 0700);
    close(listener);
}

/* ---- the watching thread ---- */

struct watched {
    struct watch *watch;
    int listener;
    atomic_int accepted, messages, ended, running;
    _Atomic uint64_t ended_ns;
};

static bool on_connection(void *arg, int fd)
{
    struct watched *w = arg;
    struct lease_message in;
    if (lease_receive(fd, &in, NULL, 0, NULL, 0, NULL) == ERROR_OK) {
        atomic_fetch_add(&w->messages, 1);
        return true;
    }
    atomic_store(&w->ended_ns, clock_ns());
    atomic_fetch_add(&w->ended, 1);
    watch_remove(w->watch, fd); /* from within the callback: must not wait for itself */
    close(fd);
    return false;
}

static bool on_listener(void *arg, int fd)
{
    struct watched *w = arg;
    struct lease_peer peer;
    int connection;
    if (lease_accept(fd, &connection, &peer, NULL) != ERROR_OK)
        return true;
    close(peer.pidfd);
    atomic_fetch_add(&w->accepted, 1);
    return watch_add(w->watch, connection, on_connection, w, NULL) == ERROR_OK;
}

static bool wait_for(atomic_int *what, int count)
{
    for (int i = 0; i < 5000 && atomic_load(what) < count; i++)
        pause_ms(1);
    return atomic_load(what) == count;
}

static void test_watch(void **state)
{
    struct watched w = {.listener = do_listen()};
    int before = open_fds();
    pid_t pid = start_client(); /* before there are threads */
    assert_int_equal(watch_new("test-watch-with-a-long-name", &w.watch, NULL), ERROR_OK);
    assert_int_equal(watch_add(w.watch, w.listener, on_listener, &w, NULL), ERROR_OK);
    assert_int_equal(watch_add(w.watch, w.listener, on_listener, &w, NULL), ERROR_EXISTS);
    assert_true(wait_for(&w.messages, 1));
    uint64_t start = clock_ns();
    kill(pid, SIGKILL);
    assert_true(wait_for(&w.ended, 1));
    print_message("the watch noticed after %.2f ms\n",
                  (double)(atomic_load(&w.ended_ns) - start) * 1e-6);
    waitpid(pid, NULL, 0);

    for (int i = 0; i < 50; i++) {
        int client;
        struct lease_message m = {0};
        assert_int_equal(lease_connect(path, 1000, &client, NULL), ERROR_OK);
        assert_int_equal(lease_send(client, &m, NULL, 0, NULL), ERROR_OK);
        close(client);
    }
    assert_true(wait_for(&w.ended, 51));
    assert_int_equal(atomic_load(&w.accepted), 51);
    assert_int_equal(atomic_load(&w.messages), 51);
    watch_remove(w.watch, w.listener);
    watch_remove(w.watch, 12345); /* not there: nothing happens */
    watch_free(w.watch);
    watch_free(NULL);
    assert_int_equal(open_fds(), before);
    close(w.listener);
}

static bool on_pipe(void *arg, int fd)
{
    struct watched *w = arg;
    atomic_store(&w->running, 1);
    pause_ms(2);
    atomic_store(&w->running, 0);
    return true; /* it stays readable: called again and again */
}

/* After watch_remove the callback neither runs nor starts. */
static void test_watch_remove(void **state)
{
    struct watched w = {0};
    int ends[2];
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    assert_int_equal(write(ends[1], "x", 1), 1);
    assert_int_equal(watch_new("test", &w.watch, NULL), ERROR_OK);
    for (int i = 0; i < 100; i++) {
        assert_int_equal(watch_add(w.watch, ends[0], on_pipe, &w, NULL), ERROR_OK);
        while (atomic_load(&w.running) == 0)
            ;
        watch_remove(w.watch, ends[0]);
        assert_int_equal(atomic_load(&w.running), 0);
        pause_ms(i % 3);
        assert_int_equal(atomic_load(&w.running), 0);
    }
    watch_free(w.watch);
    close(ends[0]);
    close(ends[1]);
}

/* ---- accepting on the watching thread ---- */

static void on_accepted(void *arg, int fd, const struct lease_peer *peer)
{
    assert_int_equal(peer->pid, getpid());
    if (peer->pidfd >= 0)
        close(peer->pidfd);
    close(fd);
    atomic_fetch_add((atomic_int *)arg, 1);
}

/* How often threads but this one went to sleep. */
static long others_sleeps(void)
{
    struct rusage all, own;
    getrusage(RUSAGE_SELF, &all);
    getrusage(RUSAGE_THREAD, &own);
    return all.ru_nvcsw - own.ru_nvcsw;
}

static int lines_in(const char *file)
{
    int n = 0;
    FILE *f = fopen(file, "re");
    for (int c; (c = fgetc(f)) != EOF;)
        n += c == '\n';
    fclose(f);
    return n;
}

/* Without a free descriptor the listener waits, quietly, and then accepts what has waited. */
static void test_listener_without_descriptors(void **state)
{
    struct watch *watch;
    struct lease_listener l;
    atomic_int accepted = 0;
    char log_path[80];
    snprintf(log_path, sizeof log_path, "%s/log", directory);
    assert_int_equal(watch_new("test", &watch, NULL), ERROR_OK);
    assert_int_equal(lease_listener_open(&l, path, watch, on_accepted, &accepted, NULL), ERROR_OK);
    int client = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0), before = dup(2);
    int log = open(log_path, O_CREAT | O_WRONLY | O_APPEND | O_CLOEXEC, 0600);
    assert_true(dup2(log, 2) == 2);
    int lowest_free = dup(0);
    close(lowest_free);
    struct rlimit limit, none;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    none = limit;
    none.rlim_cur = (rlim_t)lowest_free;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    long sleeps = -others_sleeps();
    int connected = connect_bare(client);
    for (int i = 0; i < 1000 && sleeps + others_sleeps() < 10; i++)
        pause_ms(10);
    sleeps += others_sleeps();
    int too_early = atomic_load(&accepted);
    setrlimit(RLIMIT_NOFILE, &limit);
    dup2(before, 2);
    assert_int_equal(connected, 0);
    assert_int_equal(too_early, 0);
    assert_int_equal(lines_in(log_path), 1);
    assert_true(sleeps >= 10); /* it does not try in a loop */
    assert_true(wait_for(&accepted, 1));
    close(client);

    /* closed: it accepts no more, and the watch still runs */
    lease_listener_close(&l);
    client = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    assert_int_equal(connect_bare(client), -1);
    lease_listener_close(&l);
    watch_free(watch);
    close(client);
    close(before);
    close(log);
    unlink(log_path);
}

/* ---- offers of a region ---- */

enum { SOME_OFFER = 0x100, SOME_GENERATION = 5 };

static void test_offer(void **state)
{
    int listener = do_listen(), client, server, region_fd;
    uint64_t bytes;
    make_pair(listener, &client, &server);
    struct shm region, mapped;
    struct error e;
    assert_int_equal(shm_create("moed-test-offer", 8192, &region, NULL), ERROR_OK);
    strcpy(region.base, "the worker's");
    for (int refuse = 0; refuse < 2; refuse++) {
        assert_int_equal(lease_offer_send(client, SOME_OFFER, &region, SOME_GENERATION, NULL),
                         ERROR_OK);
        assert_int_equal(lease_offer_receive(server, SOME_OFFER, SOME_GENERATION, 1000, &region_fd,
                                             &bytes, NULL),
                         ERROR_OK);
        assert_int_equal(bytes, 8192);
        assert_int_equal(shm_map(region_fd, true, bytes, &mapped, NULL), ERROR_OK);
        assert_string_equal(mapped.base, "the worker's");
        shm_close(&mapped);
        assert_int_equal(
            lease_offer_answer(server, SOME_OFFER, refuse ? ERROR_LIMIT : ERROR_OK, NULL),
            ERROR_OK);
        assert_int_equal(lease_offer_answered(client, SOME_OFFER, 1000, &e),
                         refuse ? ERROR_PROTOCOL : ERROR_OK);
        if (refuse)
            assert_non_null(strstr(e.text, error_meaning(ERROR_LIMIT)));
    }
    shm_close(&region);
    close(client);
    close(server);
    close(listener);
}

/* Refused with the reason, and no descriptor of theirs stays open. */
static void test_wrong_offers(void **state)
{
    int listener = do_listen(), client, server, region_fd = -1;
    uint64_t bytes;
    struct lease_message answer;
    make_pair(listener, &client, &server);
    struct shm region;
    assert_int_equal(shm_create("moed-test-offer", 4096, &region, NULL), ERROR_OK);
    const int fds[] = {region.fd, region.fd};
    const struct {
        uint32_t kind;
        uint64_t generation;
        unsigned n_fds;
        enum error_code code;
    } cases[] = {{SOME_OFFER + 3, SOME_GENERATION, 1, ERROR_PROTOCOL},
                 {SOME_OFFER, SOME_GENERATION, 0, ERROR_PROTOCOL},
                 {SOME_OFFER, SOME_GENERATION, 2, ERROR_PROTOCOL},
                 {SOME_OFFER, SOME_GENERATION + 1, 1, ERROR_VERSION}};
    int before = open_fds();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct lease_message m = {.kind = cases[i].kind,
                                        .value = {region.bytes, cases[i].generation}};
        assert_int_equal(lease_send(client, &m, fds, cases[i].n_fds, NULL), ERROR_OK);
        assert_int_equal(lease_offer_receive(server, SOME_OFFER, SOME_GENERATION, 1000, &region_fd,
                                             &bytes, NULL),
                         cases[i].code);
        assert_int_equal(region_fd, -1);
        assert_int_equal(lease_receive(client, &answer, NULL, 0, NULL, 1000, NULL), ERROR_OK);
        assert_int_equal(answer.kind, SOME_OFFER + LEASE_OFFER_REFUSED);
        assert_int_equal(answer.value[0], cases[i].code);
        assert_int_equal(open_fds(), before);
    }
    close(client);
    assert_int_equal(
        lease_offer_receive(server, SOME_OFFER, SOME_GENERATION, 1000, &region_fd, &bytes, NULL),
        ERROR_UNAVAILABLE);
    shm_close(&region);
    close(server);
    close(listener);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_listen),
        cmocka_unit_test(test_connect_waits),
        cmocka_unit_test(test_descriptors_travel),
        cmocka_unit_test(test_wrong_messages),
        cmocka_unit_test(test_timeout_and_end),
        cmocka_unit_test(test_peer_killed),
        cmocka_unit_test(test_other_user_refused),
        cmocka_unit_test(test_watch),
        cmocka_unit_test(test_watch_remove),
        cmocka_unit_test(test_listener_without_descriptors),
        cmocka_unit_test(test_offer),
        cmocka_unit_test(test_wrong_offers),
    };
    if (mkdtemp(directory) == NULL)
        return 1;
    snprintf(path, sizeof path, "%s/lease", directory);
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(path);
    rmdir(directory);
    return rc;
}
