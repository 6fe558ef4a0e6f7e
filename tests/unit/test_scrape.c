/* client/http/watch/scrape.c without a supervisor, as under systemd; tests/http/outage.sh has one.
 * Sockets of the test stand for processes. */
#include "client/http/watch/scrape.h"

#include "daemon/control.h"
#include "daemon/run_dir.h"
#include "ipc/rpc.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>
#include <cmocka.h>

#include "temporary_directory.h"

enum { STAND_INS = 3 };
static const char *const processes[STAND_INS] = {"memd", "cpuexec", "worker-2"};
static pthread_barrier_t all_asked;
static const char *silent; /* the process that does not answer in time */
static const char *only;   /* the deployment that is asked for; NULL: all */

/* A scrape waits two seconds for each process, a loaded machine longer. */
enum error_code __real_control_metrics(const char *run, const char *process, int timeout_ms,
                                       Moed__V1__Reply **reply, struct error *e);
enum error_code __wrap_control_metrics(const char *run, const char *process, int timeout_ms,
                                       Moed__V1__Reply **reply, struct error *e);
enum error_code __wrap_control_metrics(const char *run, const char *process, int timeout_ms,
                                       Moed__V1__Reply **reply, struct error *e)
{
    assert_true(timeout_ms <= SCRAPE_ANSWER_MS);
    if (silent && strcmp(process, silent) == 0) {
        pthread_barrier_wait(&all_asked);
        return ERROR_TIMEOUT;
    }
    return __real_control_metrics(run, process, 60000, reply, e);
}

/* Answers once all are asked. */
static void answer(void *arg, const uint8_t *request, size_t len, struct rpc_reply *out)
{
    static char text[] = "# HELP a_total A.\n# TYPE a_total counter\na_total 3\n";
    Moed__V1__MetricsReply metrics = MOED__V1__METRICS_REPLY__INIT;
    Moed__V1__Reply reply = MOED__V1__REPLY__INIT;
    (void)arg, (void)request, (void)len;
    pthread_barrier_wait(&all_asked);
    metrics.prometheus_text = text;
    reply.abi = CONTROL_ABI;
    reply.body_case = MOED__V1__REPLY__BODY_METRICS;
    reply.metrics = &metrics;
    out->data = malloc(moed__v1__reply__get_packed_size(&reply));
    out->len = moed__v1__reply__pack(&reply, out->data);
}

/* The page; valid until the next call. */
static const char *page(bool expects_own, bool cancels)
{
    static struct strbuf text;
    static bool used;
    struct metrics_merge m;
    atomic_bool cancelled = cancels;
    struct scrape_settings settings = {.own = "own",
                                       .own_run = "/none",
                                       .expects_own = expects_own,
                                       .only = only,
                                       .cancelled = &cancelled};
    if (used)
        strbuf_fini(&text);
    used = true;
    strbuf_init(&text);
    metrics_merge_init(&m);
    bool known = scrape(&settings, &m);
    assert_int_equal(known, !only || strcmp(only, "unknown") != 0);
    strbuf_printf(&text, "\n");
    metrics_merge_write(&m, &text);
    metrics_merge_fini(&m);
    assert_false(text.failed);
    return text.data;
}

#define assert_line(page, line)    assert_non_null(strstr(page, "\n" line "\n"))
#define assert_no_line(page, line) assert_null(strstr(page, "\n" line "\n"))

static void test_without_supervisor(void **state)
{
    struct rpc_server *servers[STAND_INS];
    char run[RUN_DIR_BYTES], url[RUN_URL_BYTES], file[32];
    struct error e;
    (void)state;
    assert_int_equal(run_dir_path("own", run, &e), ERROR_OK);
    assert_int_equal(run_dir_create(run, &e), ERROR_OK);
    pthread_barrier_init(&all_asked, NULL, STAND_INS);
    for (int i = 0; i < STAND_INS; i++) {
        snprintf(file, sizeof file, "%s.ctl", processes[i]);
        run_dir_url(run, file, url);
        assert_int_equal(run_dir_lock(run, processes[i], &e), ERROR_OK);
        assert_int_equal(rpc_serve(url, answer, NULL, &servers[i], &e), ERROR_OK);
    }

    const char *text = page(false, false); /* asked one after the other, none would answer */
    assert_line(text, "a_total{deployment=\"own\",process=\"memd\"} 3");
    assert_line(text, "a_total{deployment=\"own\",process=\"worker-2\"} 3");
    assert_line(text, "moed_deployment_up{deployment=\"own\"} 1");
    assert_line(text, "moed_process_up{deployment=\"own\",process=\"cpuexec\"} 1");
    assert_null(strstr(text, "process=\"worker\""));

    silent = "worker-2";
    text = page(false, false);
    assert_line(text, "a_total{deployment=\"own\",process=\"cpuexec\"} 3");
    assert_no_line(text, "a_total{deployment=\"own\",process=\"worker-2\"} 3");
    assert_line(text, "moed_deployment_up{deployment=\"own\"} 0");
    assert_line(text, "moed_process_up{deployment=\"own\",process=\"worker-2\"} 0");
    silent = NULL;

    assert_null(strstr(page(false, true), "a_total"));

    for (int i = 0; i < STAND_INS; i++)
        rpc_server_stop(servers[i]);
    pthread_barrier_destroy(&all_asked);
    run_dir_sweep(run);
    assert_int_equal(rmdir(run), 0);
    assert_int_equal(rmdir(in_directory("moed")), 0);
}

/* The frontend's own deployment and another one, each with memd and http: together they have every
 * process once, but for the frontend itself. */
static void test_other_deployments(void **state)
{
    static const char *const names[] = {"own", "other"}, *const both[] = {"memd", "http"};
    struct rpc_server *servers[2][2];
    char runs[2][RUN_DIR_BYTES], url[RUN_URL_BYTES], file[32];
    struct error e;
    (void)state;
    pthread_barrier_init(&all_asked, NULL, 1);
    for (int i = 0; i < 4; i++) {
        char *run = runs[i / 2];
        assert_int_equal(run_dir_path(names[i / 2], run, &e), ERROR_OK);
        assert_int_equal(run_dir_create(run, &e), ERROR_OK);
        snprintf(file, sizeof file, "%s.ctl", both[i % 2]);
        run_dir_url(run, file, url);
        assert_int_equal(run_dir_lock(run, both[i % 2], &e), ERROR_OK);
        assert_int_equal(rpc_serve(url, answer, NULL, &servers[i / 2][i % 2], &e), ERROR_OK);
    }
    const char *text = page(true, false);
    assert_line(text, "a_total{deployment=\"own\",process=\"memd\"} 3");
    assert_line(text, "a_total{deployment=\"other\",process=\"memd\"} 3");
    assert_line(text, "a_total{deployment=\"other\",process=\"http\"} 3");
    assert_no_line(text, "a_total{deployment=\"own\",process=\"http\"} 3"); /* its page adds it */
    for (int i = 0; i < 2; i++) {
        only = names[i];
        text = page(true, false);
        assert_non_null(strstr(text, names[i]));
        assert_null(strstr(text, names[1 - i]));
    }
    only = "unknown";
    assert_string_equal(page(true, false), "\n");
    only = NULL;
    for (int i = 0; i < 4; i++)
        rpc_server_stop(servers[i / 2][i % 2]);
    pthread_barrier_destroy(&all_asked);
    for (int i = 0; i < 2; i++) {
        run_dir_sweep(runs[i]);
        assert_int_equal(rmdir(runs[i]), 0);
    }
    assert_int_equal(rmdir(in_directory("moed")), 0);
}

/* Neither memd nor a worker has started: no process is there, and that is the outage. */
static void test_nothing_runs(void **state)
{
    (void)state;
    const char *text = page(true, false);
    assert_line(text, "moed_deployment_up{deployment=\"own\"} 0");
    assert_line(text, "moed_process_up{deployment=\"own\",process=\"memd\"} 0");
    assert_line(text, "moed_process_up{deployment=\"own\",process=\"worker\"} 0");
    assert_string_equal(page(false, false), "\n"); /* a frontend of models on demand */
}

static int setup(void **state)
{
    int made = make_directory(state);
    unsetenv("MOED_RUN");
    setenv("XDG_RUNTIME_DIR", directory, 1);
    return made;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_without_supervisor, setup, remove_directory),
        cmocka_unit_test_setup_teardown(test_other_deployments, setup, remove_directory),
        cmocka_unit_test_setup_teardown(test_nothing_runs, setup, remove_directory),
    };
    alarm(120); /* instead of a wait without end */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
