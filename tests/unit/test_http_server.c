/* Parts of the HTTP server that need no socket: framing, Host and Origin, aliases, API keys, trace
 * ids, errors' bodies, events, merged metrics, addresses; and jobs on their thread. */
#include "base/clock.h"
#include "client/http/api/stream.h"
#include "client/http/listen.h"
#include "client/http/model/model_names.h"
#include "client/http/server/access_log.h"
#include "client/http/server/auth.h"
#include "client/http/server/framing.h"
#include "client/http/server/jobs.h"
#include "client/http/server/origin.h"
#include "client/http/server/problem.h"
#include "client/http/server/turns.h"
#include "metrics/merge.h"
#include "temporary_directory.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

/* fields: "Name: value" lines */
static const char *frame(const char *version, const char *const *fields, struct framing *f)
{
    *f = (struct framing){0};
    for (; *fields; fields++) {
        char name[64], value[64];
        assert_int_equal(sscanf(*fields, "%63[^:]:%*[ ]%63[^\n]", name, value), 2);
        framing_field(f, name, value);
    }
    return framing_end(f, version, NULL);
}

/* As libmicrohttpd leaves a head: NULs where lines end and a colon was. */
static const char *place(const char *head, size_t len, size_t name, size_t value)
{
    struct framing f = {0};
    framing_at(&f, head);
    framing_field(&f, head + name, head + value);
    framing_field(&f, "Host", "a"); /* elsewhere */
    const char *apart = f.fault;
    f = (struct framing){0};
    framing_at(&f, head);
    framing_field(&f, head + name, head + value);
    return apart ? framing_end(&f, "HTTP/1.1", head + len) : "";
}

static void test_places(void **state)
{
    assert_null(place("\0\0Host\0 a\0\0\0\0", 13, 2, 8));
    assert_null(place("\0Host\0a\0\0", 9, 1, 6));
    assert_non_null(place("\0\0Host\0 a\0b\0\0\0\0", 15, 2, 8));  /* a NUL in the last value */
    assert_non_null(place("\0\0b\0Host\0 a\0\0\0\0", 15, 4, 10)); /* ... in the one before */
    assert_non_null(place("\0\0Host\0ab\0\0\0\0", 13, 2, 8));     /* not behind the colon */
}

/* As libmicrohttpd leaves a request line. */
static const char *place_line(const char *line, size_t target, size_t version)
{
    struct framing f = {0};
    framing_line(&f, line, line + target, line + target + strlen(line + target), line + version);
    return f.fault;
}

static void test_places_of_a_line(void **state)
{
    assert_null(place_line("GET\0/a\0HTTP/1.1", 4, 7));
    assert_null(place_line("GET\0  /a\0HTTP/1.1", 6, 9));
    assert_non_null(place_line("GET\0/a\0b\0HTTP/1.1", 4, 9));
    assert_non_null(place_line("GET\0b\0/a\0HTTP/1.1", 6, 9));
}

static void test_framing(void **state)
{
    struct framing f;
    const char *plain[] = {"Host: a", "Content-Length: 12", NULL};
    assert_null(frame("HTTP/1.1", plain, &f));
    assert_true(f.has_length && f.length == 12 && !f.chunked);
    const char *chunked[] = {"HOST: a", "transfer-encoding: Chunked", NULL};
    assert_null(frame("HTTP/1.1", chunked, &f));
    assert_true(f.chunked);
    const char *none[] = {NULL};
    assert_null(frame("HTTP/1.0", none, &f));
    static const char *const wrong[][4] = {
        {NULL},
        {"Host: a", "Host: a", NULL},
        {"Host: a", "Content-Length: 1", "Content-Length: 1", NULL},
        {"Host: a", "Content-Length: 1", "Transfer-Encoding: chunked", NULL},
        {"Host: a", "Content-Length: -1", NULL},
        {"Host: a", "Content-Length: +1", NULL},
        {"Host: a", "Content-Length: 1, 1", NULL},
        {"Host: a", "Content-Length: 0x10", NULL},
        {"Host: a", "Content-Length: 99999999999999999999", NULL},
        {"Host: a", "Transfer-Encoding: gzip, chunked", NULL},
        {"Host: a", "Transfer-Encoding: identity", NULL},
        {"Host: a", "Transfer-Encoding: chunked", "Transfer-Encoding: chunked", NULL},
        {"Host: a", "Content-Length : 1", NULL},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        if (!frame("HTTP/1.1", wrong[i], &f))
            fail_msg("case %zu is accepted", i);
    assert_non_null(frame("HTTP/2.0", plain, &f));
    assert_non_null(frame("HTTP/1.0", chunked, &f));
}

static void test_hosts(void **state)
{
    static const char *const good[] = {"localhost", "localhost:8080", "LOCALHOST",   "127.0.0.1:1",
                                       "[::1]",     "[::1]:8080",     "10.0.0.7:80", "my.example"};
    static const char *const bad[] = {"evil.example",           "localhost.evil.example",
                                      "my.example.org",         "[::1",
                                      "localhost:8x",           "",
                                      "127.0.0.1.evil.example", "[localhost]x"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        if (!origin_host_allowed(good[i], "other.example, my.example"))
            fail_msg("%s is refused", good[i]);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (origin_host_allowed(bad[i], "other.example, my.example"))
            fail_msg("%s is allowed", bad[i]);
}

static void test_origins(void **state)
{
    static const char *const good[] = {"http://localhost:3000",
                                       "https://localhost",
                                       "http://LOCALHOST",
                                       "http://127.0.0.1:1",
                                       "http://[::1]:8081",
                                       "http://tauri.localhost",
                                       "https://a.b.localhost:9",
                                       "app://obsidian.md",
                                       "app://-",
                                       "file://",
                                       "tauri://localhost",
                                       "capacitor://localhost",
                                       "vscode-webview://0a1b",
                                       "vscode-file://vscode-app",
                                       "chrome-extension://abc",
                                       "moz-extension://0-1-2",
                                       "safari-web-extension://0-1"};
    static const char *const bad[] = {"null",
                                      "",
                                      "https://evil.example",
                                      "http://localhost.evil.example",
                                      "http://evillocalhost",
                                      "http://.localhost.example",
                                      "http://127.0.0.1.evil.example",
                                      "http://127.0.0.2",
                                      "http://evil.example/.localhost",
                                      "http://[::1",
                                      "http://[localhost]",
                                      "http://localhost:8x",
                                      "ftp://localhost",
                                      "apps://evil.example",
                                      "https://tauri.evil.example"};
    bool other;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        if (!origin_allowed(good[i], "127.0.0.1:8080", NULL, &other) || !other)
            fail_msg("%s is refused", good[i]);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (origin_allowed(bad[i], "127.0.0.1:8080", "https://a.example", &other))
            fail_msg("%s is allowed", bad[i]);
    assert_true(origin_allowed("http://10.0.0.7:8080", "10.0.0.7:8080", NULL, &other));
    assert_false(other);
    assert_true(origin_allowed("https://a.example", "localhost",
                               "https://b.example,https://a.example", &other));
    assert_true(other);
    assert_false(origin_allowed("https://a.example.org", "localhost", "https://a.example", &other));
    const char *own = "https://moed.example"; /* a list of the server's own origin alone */
    assert_true(origin_allowed(own, "moed.example", own, &other));
    assert_false(origin_allowed("https://a.example", "moed.example", own, &other));
    assert_true(origin_allowed("http://localhost:3000", "moed.example", own, &other));
    assert_true(origin_allowed("https://anybody.example", "localhost", "*", &other));
    assert_true(origin_allowed("null", "localhost", "*", &other));
}

/* The log names another origin than the last one, at most one a minute, in printable ASCII. */
static void test_logged_origins(void **state)
{
    const uint64_t minute = 60000000000;
    struct origin_log log = {0};
    assert_true(origin_log_takes(&log, "https://a.example", 5));
    assert_false(origin_log_takes(&log, "https://b.example", minute + 4));
    assert_false(origin_log_takes(&log, "https://a.example", minute + 5));
    assert_true(origin_log_takes(&log, "https://b.example", minute + 5));
    assert_string_equal(log.last, "https://b.example");
    assert_true(origin_log_takes(&log, "x': \033[1m\n\xc2\x9b", 9 * minute));
    assert_string_equal(log.last, "x?:??[1m???");
    char endless[200];
    memset(endless, 'a', sizeof endless);
    endless[sizeof endless - 1] = '\0';
    assert_true(origin_log_takes(&log, endless, 20 * minute));
    assert_int_equal(strlen(log.last), sizeof log.last - 1);
    assert_false(origin_log_takes(&log, endless, 30 * minute));
}

static void test_model_names(void **state)
{
    struct model_names n = {0};
    struct error e;
    assert_int_equal(model_names_add(&n, "sonnet, opus = demo ,x=a=b", &e), ERROR_OK);
    assert_int_equal(model_names_add(&n, "sonnet=other", &e), ERROR_OK);
    assert_int_equal(n.count, 3);
    assert_string_equal(model_names_find(&n, "sonnet"), "other");
    assert_string_equal(model_names_find(&n, "opus:latest"), "demo");
    assert_string_equal(model_names_find(&n, "x"), "a=b");
    assert_string_equal(model_names_find(&n, "opus:4"), "opus:4");
    assert_string_equal(model_names_find(&n, ""), "");
    static const char *const wrong[] = {"", ",", "a,", "=b", "a=", " "};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        if (!model_names_add(&n, wrong[i], &e) || !strstr(e.text, "--alias"))
            fail_msg("'%s' is a list of aliases", wrong[i]);
    char longer[MODEL_NAME_BYTES + 1];
    memset(longer, 'a', sizeof longer);
    longer[MODEL_NAME_BYTES] = '\0';
    assert_int_equal(model_names_add(&n, longer, &e), ERROR_USAGE);
    model_names_fini(&n);
}

static const char *write_keys(const char *text, mode_t mode)
{
    const char *path = in_directory("keys");
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
    chmod(path, mode);
    return path;
}

static void test_keys(void **state)
{
    struct auth a;
    struct error e;
    assert_int_equal(
        auth_read(write_keys("# c\n\nalice  key-of-alice\nkey-without # c\n", 0600), "key", &a, &e),
        ERROR_OK);
    assert_int_equal(a.count, 2);
    assert_string_equal(auth_check(&a, "Bearer key-of-alice", NULL), "alice");
    assert_string_equal(auth_check(&a, "bearer   key-of-alice", NULL), "alice");
    assert_string_equal(auth_check(&a, NULL, "key-without"), "key-2");
    static const char *const wrong[] = {"Bearer key-of-alic", "Bearer key-of-alicee", "Bearer ",
                                        "key-of-alice",       "Basic key-of-alice",   ""};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        if (auth_check(&a, wrong[i], NULL))
            fail_msg("'%s' is a key", wrong[i]);
    assert_null(auth_check(&a, NULL, NULL));
    auth_free(&a);
    static const char *const bad[] = {"", "# only a comment\n", "short\n"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_not_equal(auth_read(write_keys(bad[i], 0600), "key", &a, &e), ERROR_OK);
    assert_int_equal(auth_read(write_keys("key-of-alice\n", 0640), "key", &a, &e), ERROR_USAGE);
    assert_int_not_equal(auth_read("/nowhere/keys", "key", &a, &e), ERROR_OK);
}

/* The example of the W3C's Trace Context, section 3.2.2. */
static void test_trace_ids(void **state)
{
    char trace[33];
    access_take_trace("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", trace);
    assert_string_equal(trace, "4bf92f3577b34da6a3ce929d0e0e4736");
    access_take_trace("cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-later", trace);
    assert_string_equal(trace, "4bf92f3577b34da6a3ce929d0e0e4736");
    static const char *const wrong[] = {
        "",
        "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-later",
        "cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01later",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0g",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
        "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
        "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
        "00-4bf92f3577b34da6a3ce929d0e0e473-00f067aa0ba902b7-011",
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        access_take_trace(wrong[i], trace);
        assert_string_equal(trace, "");
    }
}

static void test_problems(void **state)
{
    static const struct {
        enum http_api api;
        const char *body;
    } shapes[] = {
        {HTTP_API_OPENAI, "{\"error\":{\"message\":\"a \\\"b\\\"\",\"type\":\"not_found_error\","
                          "\"param\":\"a\",\"code\":\"model_not_found\"}}"},
        {HTTP_API_ANTHROPIC, "{\"type\":\"error\",\"error\":{\"type\":\"not_found_error\","
                             "\"message\":\"a \\\"b\\\"\"}}"},
        {HTTP_API_OLLAMA, "{\"error\":\"a \\\"b\\\"\"}"},
    };
    struct problem p;
    assert_false(problem_set(&p, 404, "a \"%s\"", "b"));
    p.code = "model_not_found";
    strcpy(p.parameter, "a");
    for (size_t i = 0; i < 3; i++) {
        struct strbuf out;
        strbuf_init(&out);
        problem_body(&p, shapes[i].api, &out);
        assert_string_equal(out.data, shapes[i].body);
        strbuf_fini(&out);
    }
    /* a message that does not begin with its parameter gets it in front */
    struct strbuf out;
    strbuf_init(&out);
    strcpy(p.parameter, "seed");
    problem_body(&p, HTTP_API_OLLAMA, &out);
    assert_string_equal(out.data, "{\"error\":\"seed: a \\\"b\\\"\"}");
    strbuf_fini(&out);
}

static void test_events(void **state)
{
    struct strbuf out;
    strbuf_init(&out);
    event_begin(&out, NULL);
    strbuf_printf(&out, "{");
    json_member(&out, "a", "x\n\n", 3); /* a newline would end the event */
    json_member(&out, "b", "", 0);
    strbuf_printf(&out, "}");
    event_end(&out);
    event_begin(&out, "stop");
    strbuf_printf(&out, "{}");
    event_end(&out);
    event_comment(&out);
    assert_string_equal(out.data, "data: {\"a\":\"x\\n\\n\",\"b\":\"\"}\n\n"
                                  "event: stop\ndata: {}\n\n:\n\n");
    strbuf_fini(&out);
}

static void test_merged_metrics(void **state)
{
    struct metrics_merge m;
    struct strbuf out;
    metrics_merge_init(&m);
    strbuf_init(&out);
    metrics_merge_add(&m,
                      "# HELP a One.\n# TYPE a gauge\na 1\n# HELP b Two.\n# TYPE b counter\n"
                      "b{x=\"1\"} 2\nb{x=\"2\"} 3\n",
                      "p=\"m\"");
    metrics_merge_add(&m,
                      "# HELP b Two.\n# TYPE b counter\nb 4\n# HELP c Three.\n# TYPE c gauge\nc 5",
                      "p=\"w\"");
    metrics_merge_write(&m, &out);
    assert_string_equal(out.data, "# HELP a One.\n# TYPE a gauge\na{p=\"m\"} 1\n"
                                  "# HELP b Two.\n# TYPE b counter\nb{p=\"m\",x=\"1\"} 2\n"
                                  "b{p=\"m\",x=\"2\"} 3\nb{p=\"w\"} 4\n"
                                  "# HELP c Three.\n# TYPE c gauge\nc{p=\"w\"} 5\n");
    strbuf_fini(&out);
    metrics_merge_fini(&m);
}

static void test_addresses(void **state)
{
    static const char *const good[][3] = {
        {"8080", "127.0.0.1", "8080"},
        {"0.0.0.0:80", "0.0.0.0", "80"},
        {"[::1]:0", "::1", "0"},
        {"name.example:65535", "name.example", "65535"},
    };
    static const char *const bad[] = {"", ":80", "a:", "65536", "a:b", "80x", "123456", "[::1]"};
    struct listen_address a;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        assert_int_equal(listen_parse(good[i][0], &a, NULL), ERROR_OK);
        assert_string_equal(a.host, good[i][1]);
        assert_string_equal(a.port, good[i][2]);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (!listen_parse(bad[i], &a, NULL))
            fail_msg("%s is an address", bad[i]);
}

static void test_listening(void **state)
{
    struct listen_address a;
    struct error e;
    int fd, again;
    bool loopback;
    unsigned port, other;
    assert_int_equal(listen_parse("0", &a, &e), ERROR_OK);
    assert_int_equal(listen_tcp(&a, &fd, &loopback, &port, &e), ERROR_OK);
    assert_true(loopback && port);
    snprintf(a.port, sizeof a.port, "%u", port);
    assert_int_equal(listen_tcp(&a, &again, &loopback, &other, &e), ERROR_EXISTS);
    assert_non_null(strstr(e.text, "another program has the port"));
    assert_non_null(strstr(e.text, "--http PORT"));
    close(fd);
    assert_int_equal(listen_parse("0.0.0.0:0", &a, &e), ERROR_OK);
    assert_int_equal(listen_tcp(&a, &fd, &loopback, &port, &e), ERROR_OK);
    assert_false(loopback);
    close(fd);
}

static void test_unix_socket(void **state)
{
    const char *path = in_directory("http.sock");
    struct unix_socket socket, other;
    struct error e;
    struct stat s;
    int fd, again;
    assert_int_equal(listen_unix(path, &socket, &fd, &e), ERROR_OK);
    assert_int_equal(stat(path, &s), 0);
    assert_int_equal(s.st_mode & 0777, 0600);
    assert_int_equal(listen_unix(path, &other, &again, &e), ERROR_EXISTS); /* in use */
    assert_non_null(strstr(e.text, "another process listens at "));
    close(fd);
    assert_int_equal(listen_unix(path, &socket, &fd, &e), ERROR_OK); /* left behind */
    listen_unix_remove(&socket);
    assert_int_not_equal(stat(path, &s), 0);
    assert_int_equal(listen_unix(path, &other, &again, &e), ERROR_OK); /* the path is free */
    socket.path = path;
    listen_unix_remove(&socket); /* another's stays */
    assert_int_equal(stat(path, &s), 0);
    listen_unix_remove(&other);
    close(fd);
    close(again);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fclose(f);
    assert_int_equal(listen_unix(path, &socket, &fd, &e), ERROR_EXISTS); /* a file, not a socket */
    assert_int_equal(stat(path, &s), 0);
    unlink(path);
}

/* ---- Jobs ---- */

struct counted {
    struct job job; /* first */
    unsigned *order, number;
    bool worked;
};

static void count_work(struct job *job)
{
    ((struct counted *)job)->worked = true;
}

static void count_done(struct job *job)
{
    struct counted *c = (struct counted *)job;
    c->number = ++*c->order;
}

static void test_jobs(void **state)
{
    enum { N = 100 };
    static struct counted jobs[N];
    struct loop loop;
    struct job_queue q;
    struct error e;
    unsigned order = 0;
    assert_int_equal(loop_init(&loop, &e), ERROR_OK);
    assert_int_equal(jobs_start(&q, &loop, "test", &e), ERROR_OK);
    for (int i = 0; i < N / 2; i++) {
        jobs[i] =
            (struct counted){.job = {.work = count_work, .done = count_done}, .order = &order};
        jobs_post(&q, &jobs[i].job);
    }
    uint64_t end = clock_end_ns(5000);
    while (order < N / 2 && clock_ns() < end)
        loop_wait(&loop, 100);
    assert_int_equal(order, N / 2);
    for (int i = 0; i < N / 2; i++)
        assert_true(jobs[i].worked && jobs[i].number == (unsigned)i + 1);
    /* those that wait when it stops come back too */
    for (int i = N / 2; i < N; i++) {
        jobs[i] =
            (struct counted){.job = {.work = count_work, .done = count_done}, .order = &order};
        jobs_post(&q, &jobs[i].job);
    }
    jobs_stop(&q);
    assert_int_equal(order, N);
    loop_fini(&loop);
}

struct gate {
    struct job job; /* first */
    pthread_mutex_t *lock;
};

static void pass_gate(struct job *job)
{
    struct gate *g = (struct gate *)job;
    pthread_mutex_lock(g->lock);
    pthread_mutex_unlock(g->lock);
}

static void ignore_done(struct job *job) {}

/* Of jobs behind one that runs, the first, the last and one between are withdrawn. */
static void test_withdrawn_jobs(void **state)
{
    enum { N = 7 };
    struct counted jobs[N];
    struct loop loop;
    struct job_queue q;
    struct error e;
    unsigned order = 0;
    pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    struct gate gate = {.job = {.work = pass_gate, .done = ignore_done}, .lock = &lock};
    assert_int_equal(loop_init(&loop, &e), ERROR_OK);
    assert_int_equal(jobs_start(&q, &loop, "test", &e), ERROR_OK);
    pthread_mutex_lock(&lock);
    jobs_post(&q, &gate.job);
    for (int i = 0; i < N; i++) {
        jobs[i] =
            (struct counted){.job = {.work = count_work, .done = count_done}, .order = &order};
        if (i == N - 1) /* the list's end is right again */
            assert_true(jobs_withdraw(&q, &jobs[i - 1].job));
        jobs_post(&q, &jobs[i].job);
    }
    assert_true(jobs_withdraw(&q, &jobs[0].job) && jobs_withdraw(&q, &jobs[3].job));
    assert_false(jobs_withdraw(&q, &jobs[3].job));
    pthread_mutex_unlock(&lock);
    uint64_t end = clock_end_ns(5000);
    while (order < N - 3 && clock_ns() < end)
        loop_wait(&loop, 100);
    assert_false(jobs_withdraw(&q, &jobs[1].job)); /* it has run */
    jobs_stop(&q);
    assert_int_equal(order, N - 3);
    for (int i = 0; i < N; i++)
        assert_int_equal(jobs[i].worked, i != 0 && i != 3 && i != N - 2);
    loop_fini(&loop);
}

struct served {
    struct turn turn; /* first */
    char name, **log;
};

static void log_served(struct turn *turn)
{
    struct served *s = (struct served *)turn;
    *(*s->log)++ = s->name;
}

/* Behind A's that runs: A has three more, then B two, then C one, then A one; withdrawn ones have
 * no turn, and others of their client keep theirs. */
static void test_turns(void **state)
{
    static const char names[] = "aAAABBCA";
    enum { N = sizeof names - 1 };
    struct served all[N];
    struct loop loop;
    struct turns t;
    struct error e;
    char log[N + 1] = {0}, *end = log;
    assert_int_equal(loop_init(&loop, &e), ERROR_OK);
    assert_int_equal(turns_start(&t, &loop, "test", &e), ERROR_OK);
    for (int i = 0; i < N; i++) {
        all[i] = (struct served){
            .turn = {.job.work = ignore_done, .done = log_served}, .name = names[i], .log = &end};
        turns_post(&t, names[i] == 'a' ? 'A' : (uint64_t)names[i], &all[i].turn);
    }
    assert_int_equal(turns_of(&t, 'A'), 5);
    assert_true(turns_withdraw(&t, &all[2].turn)); /* in the middle */
    assert_false(turns_withdraw(&t, &all[2].turn));
    assert_true(turns_withdraw(&t, &all[7].turn)); /* the newest */
    assert_true(turns_withdraw(&t, &all[4].turn)); /* the oldest */
    assert_int_equal(turns_of(&t, 'A'), 3);
    assert_int_equal(turns_of(&t, 'B') + turns_of(&t, 'C'), 2);
    uint64_t limit = clock_end_ns(5000);
    while (t.count && clock_ns() < limit)
        loop_wait(&loop, 100);
    assert_string_equal(log, "aABCA");
    turns_stop(&t);
    loop_fini(&loop);
}

/* A watch that is removed while its event waits in the batch is not called. */
struct pair {
    struct watch watch; /* first */
    struct loop *loop;
    struct pair *other;
    int calls;
};

static void on_pair(struct watch *w, uint32_t events)
{
    struct pair *p = (struct pair *)w;
    p->calls++;
    loop_remove(p->loop, &p->other->watch);
}

static void test_loop_removal(void **state)
{
    struct loop loop;
    struct error e;
    struct pair a = {.loop = &loop}, b = {.loop = &loop, .other = &a};
    int ends[2][2];
    a.other = &b;
    assert_int_equal(loop_init(&loop, &e), ERROR_OK);
    struct pair *pairs[] = {&a, &b};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(pipe(ends[i]), 0);
        assert_int_equal(write(ends[i][1], "x", 1), 1);
        pairs[i]->watch = (struct watch){.fd = ends[i][0], .ready = on_pair};
        assert_int_equal(loop_add(&loop, &pairs[i]->watch, EPOLLIN, &e), ERROR_OK);
    }
    loop_wait(&loop, 1000);
    assert_int_equal(a.calls + b.calls, 1);
    for (int i = 0; i < 2; i++) {
        close(ends[i][0]);
        close(ends[i][1]);
    }
    loop_fini(&loop);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_framing),          cmocka_unit_test(test_places),
        cmocka_unit_test(test_places_of_a_line), cmocka_unit_test(test_hosts),
        cmocka_unit_test(test_origins),          cmocka_unit_test(test_logged_origins),
        cmocka_unit_test(test_model_names),      cmocka_unit_test(test_keys),
        cmocka_unit_test(test_trace_ids),        cmocka_unit_test(test_problems),
        cmocka_unit_test(test_events),           cmocka_unit_test(test_merged_metrics),
        cmocka_unit_test(test_addresses),        cmocka_unit_test(test_listening),
        cmocka_unit_test(test_unix_socket),      cmocka_unit_test(test_jobs),
        cmocka_unit_test(test_withdrawn_jobs),   cmocka_unit_test(test_turns),
        cmocka_unit_test(test_loop_removal),
    };
    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
