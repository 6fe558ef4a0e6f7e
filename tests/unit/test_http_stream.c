/* A stream of the HTTP server (client/http/server/exchange.h) over a socket, in one thread: its
 * headers, which clients are given up because they do not read; what counts as a request; and how
 * many connections an address has; and whose request is behind a proxy. */
#include "client/http/server/server.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

enum { STREAM_BYTES = 10000, EVENT_BYTES = 3 * STREAM_BYTES };

static struct server_settings settings = {.connections = 8,
                                          .body_bytes = 1000,
                                          .bodies_bytes = 1000,
                                          .header_timeout_s = 600,
                                          .idle_timeout_s = 600,
                                          .stream_bytes = STREAM_BYTES};
static struct loop loop;
static struct server server;
static struct exchange *stream; /* the one that is open; NULL: none */
static bool gone;               /* it was given up */

static void on_left(struct exchange *x)
{
    gone = true;
    stream = NULL;
}

static void begin(struct exchange *x)
{
    stream = x;
    x->left = on_left;
    exchange_stream_begin(x, "text/plain");
}

static char client[CLIENT_ADDRESS_BYTES]; /* of the last request to reply() */

static void reply(struct exchange *x)
{
    snprintf(client, sizeof client, "%s", x->log.client);
    exchange_reply(x, 200, "text/plain");
}

static const struct route routes[] = {{.method = "GET", .path = "/stream", .handle = begin},
                                      {.method = "GET", .path = "/readyz", .handle = reply},
                                      {.method = "GET", .path = "/else", .handle = reply},
                                      {0}};

static int listen_somewhere(struct sockaddr_in *at)
{
    socklen_t len = sizeof *at;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    *at = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    assert_int_equal(bind(fd, (struct sockaddr *)at, sizeof *at), 0);
    assert_int_equal(listen(fd, 8), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)at, &len), 0);
    return fd;
}

/* headers: further lines. */
static int request_with(const struct sockaddr_in *at, const char *path, const char *headers)
{
    char request[256];
    int len = snprintf(request, sizeof request, "GET %s HTTP/1.1\r\nHost: localhost\r\n%s\r\n",
                       path, headers);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), bytes = 4096;
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes);
    assert_int_equal(connect(fd, (const struct sockaddr *)at, sizeof *at), 0);
    assert_int_equal(send(fd, request, (size_t)len, 0), len);
    return fd;
}

static int request(const struct sockaddr_in *at, const char *path)
{
    return request_with(at, path, "");
}

static int ask(const struct sockaddr_in *at)
{
    int fd = request(at, "/stream");
    gone = false;
    while (!stream)
        server_run(&server, 100);
    return fd;
}

static bool push(char byte, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        strbuf_append(&stream->out, &byte, 1);
    return exchange_stream_push(stream);
}

/* Reads until as many of this byte have come. */
static void read_all(int fd, char byte, size_t bytes)
{
    char some[4096];
    while (bytes) {
        server_run(&server, 0);
        ssize_t n = recv(fd, some, sizeof some, MSG_DONTWAIT);
        assert_true(n > 0 || (n < 0 && errno == EAGAIN));
        for (ssize_t i = 0; i < n; i++)
            bytes -= some[i] == byte;
    }
}

/* Reads until what has come has this text. */
static void read_text(int fd, const char *text)
{
    char all[4096] = "";
    size_t len = 0;
    while (!strstr(all, text)) {
        server_run(&server, 0);
        ssize_t n = recv(fd, all + len, sizeof all - 1 - len, MSG_DONTWAIT);
        assert_true(n > 0 || (n < 0 && errno == EAGAIN));
        len += n > 0 ? (size_t)n : 0;
        all[len] = '\0';
    }
}

static void test_headers(void **state)
{
    int fd = ask(*state);
    assert_true(push('#', 1));
    read_text(fd, "\r\nX-Accel-Buffering: no\r\n");
    close(fd);
    while (!gone)
        server_run(&server, 100);
}

static void test_probes_are_no_requests(void **state)
{
    uint64_t probes = counter_read(server.metrics.probes);
    uint64_t requests = counter_read(server.metrics.requests[2]);
    for (int i = 0; i < 3; i++) {
        int fd = request(*state, i ? "/readyz" : "/else");
        read_text(fd, "200 OK");
        close(fd);
    }
    while (server.connections)
        server_run(&server, 100);
    assert_int_equal(counter_read(server.metrics.probes), probes + 2);
    assert_int_equal(counter_read(server.metrics.requests[2]), requests + 1);
}

/* Whether a further connection is served. */
static bool is_served(const struct sockaddr_in *at)
{
    char byte;
    ssize_t n = -1;
    int fd = request(at, "/else");
    while (n < 0) {
        server_run(&server, 1);
        n = recv(fd, &byte, 1, MSG_DONTWAIT);
        if (n < 0 && errno != EAGAIN)
            n = 0; /* reset */
    }
    close(fd);
    return n > 0;
}

/* A trusted proxy has the connections of many clients. */
static void test_connections_of_an_address(void **state)
{
    struct error e;
    int fd = request(*state, "/else");
    read_text(fd, "200 OK");
    settings.connections_per_ip = 1;
    assert_false(is_served(*state));
    assert_int_equal(trusted_proxies_parse("127.0.0.0/8", &settings.proxies, &e), ERROR_OK);
    assert_true(is_served(*state));
    trusted_proxies_free(&settings.proxies);
    settings.connections_per_ip = 0;
    close(fd);
    while (server.connections)
        server_run(&server, 100);
}

static void expect_client(const struct sockaddr_in *at, const char *headers, const char *expected)
{
    int fd = request_with(at, "/else", headers);
    read_text(fd, "200 OK");
    close(fd);
    while (server.connections)
        server_run(&server, 100);
    assert_string_equal(client, expected);
}

/* Each proxy may add its hop to the line that it got, or in a line of its own. */
static void test_forwarded_requests(void **state)
{
    static const char lines[] = "X-Forwarded-For: 192.0.2.1, 192.0.2.7\r\n"
                                "x-forwarded-for: 127.0.0.9\r\n";
    struct error e;
    expect_client(*state, lines, "127.0.0.1"); /* nobody is trusted */
    assert_int_equal(trusted_proxies_parse("127.0.0.0/8", &settings.proxies, &e), ERROR_OK);
    expect_client(*state, lines, "192.0.2.7");
    expect_client(*state, "X-Forwarded-For: 192.0.2.7\r\nX-Forwarded-For: unknown\r\n",
                  "127.0.0.1");
    expect_client(*state, "", "127.0.0.1");
    trusted_proxies_free(&settings.proxies);
}

/* An event may be larger than the limit, which is for what a client leaves unread. */
static void test_large_events(void **state)
{
    const struct sockaddr_in *at = *state;
    int fd = ask(at);
    for (int i = 0; i < 3; i++) {
        assert_true(push('#', EVENT_BYTES));
        read_all(fd, '#', EVENT_BYTES);
        while (!stream->suspended) /* until all is sent, as it knows */
            server_run(&server, 0);
        assert_true(push('!', 1));
        read_all(fd, '!', 1);
    }
    close(fd);
    while (!gone)
        server_run(&server, 100);
}

static void test_unread_events(void **state)
{
    const struct sockaddr_in *at = *state;
    int fd = ask(at), pushes = 0;
    while (push('#', EVENT_BYTES)) {
        assert_true(pushes++ < 1000); /* beyond what the sockets hold */
        server_run(&server, 0);
    }
    assert_true(gone && pushes > 0);
    close(fd);
    while (server.connections)
        server_run(&server, 100);
}

int main(void)
{
    struct sockaddr_in at;
    struct error e;
    struct metrics *metrics = metrics_new();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(test_large_events, &at),
        cmocka_unit_test_prestate(test_unread_events, &at),
        cmocka_unit_test_prestate(test_headers, &at),
        cmocka_unit_test_prestate(test_connections_of_an_address, &at),
        cmocka_unit_test_prestate(test_forwarded_requests, &at),
        cmocka_unit_test_prestate(test_probes_are_no_requests, &at)};
    if (!metrics || loop_init(&loop, &e))
        return 1;
    server = (struct server){.loop = &loop, .settings = &settings, .routes = routes};
    server_metrics_register(&server.metrics, metrics);
    if (server_listen(&server, listen_somewhere(&at), false, &e))
        return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    server_close(&server);
    loop_fini(&loop);
    metrics_free(metrics);
    return failed;
}
