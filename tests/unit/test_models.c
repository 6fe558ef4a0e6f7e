/* moed-models: a scan of its folder, a look at its deployments, and its end
 * (deploy/models/models.h). A program of the test stands for `moed`: a real one hangs in `up` only
 * where a supervisor hangs. Sockets of the test stand for workers. */
#include "deploy/models/models.h"

#include "base/clock.h"
#include "daemon/control.h"
#include "daemon/models_started.h"
#include "ipc/rpc.h"
#include "mkmodel/mkmodel.h"
#include "temporary_directory.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/stat.h>
#include <time.h>
#include <cmocka.h>

/* ---- A scan ---- */

static struct models scanned;
static unsigned n_forks, n_locked;

/* Before the fork for a process that reads a model file. */
static void look_at_lock(void)
{
    n_forks++;
    if (pthread_mutex_trylock(&scanned.lock) == 0)
        pthread_mutex_unlock(&scanned.lock);
    else
        n_locked++;
}

static void make_old(const char *path)
{
    struct timespec times[2];
    clock_gettime(CLOCK_REALTIME, &times[0]);
    times[0].tv_sec -= 60;
    times[1] = times[0];
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
}

static void write_old_model(const char *path)
{
    struct mkmodel_options o;
    struct mkmodel_result result;
    struct error e;
    mkmodel_defaults(&o);
    o.layers = 1;
    o.hidden = 64;
    o.heads = 2;
    o.kv_heads = 1;
    o.experts = 4;
    o.top_k = 2;
    o.expert_width = 64;
    o.vocab = 400;
    assert_int_equal(mkmodel_write(&o, path, NULL, NULL, &result, &e), 0);
    make_old(path);
}

/* Model files are read without the lock, so the main thread can go on. */
static void test_reads_without_the_lock(void **state)
{
    const struct models_settings settings = {.folder = directory, .keep_s = 300};
    struct metrics *metrics = metrics_new();
    Moed__V1__ModelsRequest q = MOED__V1__MODELS_REQUEST__INIT;
    Moed__V1__ModelsReply reply = MOED__V1__MODELS_REPLY__INIT;
    struct error e;
    (void)state;
    scanned.settings = &settings;
    scanned.wake_fd = -1;
    scanned.available = metrics_gauge(metrics, "moed_test_models", NULL, "Models.");
    pthread_mutex_init(&scanned.lock, NULL);
    write_old_model(in_directory("small.gguf"));
    assert_int_equal(pthread_atfork(look_at_lock, NULL, NULL), 0);
    q.action = MOED__V1__MODELS_REQUEST__ACTION__LIST;
    assert_int_equal(models_request(&scanned, &q, &reply, &e), ERROR_OK);
    assert_int_equal(reply.n_models, 1);
    assert_string_equal(reply.models[0]->id, "small");
    assert_int_equal(n_forks, 1);
    assert_int_equal(n_locked, 0);
    models_fini(&scanned);
    metrics_free(metrics);
}

/* A terminal shows the names of files and folders: none has a control character. */
static void test_names_of_what_is_left_out(void **state)
{
    const struct models_settings settings = {.folder = directory, .keep_s = 300};
    struct metrics *metrics = metrics_new();
    Moed__V1__ModelsRequest q = MOED__V1__MODELS_REQUEST__INIT;
    Moed__V1__ModelsReply reply = MOED__V1__MODELS_REPLY__INIT;
    struct error e;
    (void)state;
    scanned = (struct models){.settings = &settings, .wake_fd = -1};
    scanned.available = metrics_gauge(metrics, "moed_test_models", NULL, "Models.");
    pthread_mutex_init(&scanned.lock, NULL);
    assert_int_equal(mkdir(in_directory("a\033[31m"), 0700), 0);
    write_old_model(in_directory("a\033[31m/cut.gguf"));
    assert_int_equal(truncate(in_directory("a\033[31m/cut.gguf"), 100), 0);
    make_old(in_directory("a\033[31m/cut.gguf"));
    q.action = MOED__V1__MODELS_REQUEST__ACTION__LIST;
    assert_int_equal(models_request(&scanned, &q, &reply, &e), ERROR_OK);
    assert_int_equal(reply.n_left_out, 1);
    assert_string_equal(reply.left_out[0]->file, "a?[31m/cut.gguf");
    assert_null(strchr(reply.left_out[0]->reason, 033));
    models_fini(&scanned);
    metrics_free(metrics);
    unlink(in_directory("a\033[31m/cut.gguf"));
    rmdir(in_directory("a\033[31m"));
}

/* ---- A look ---- */

enum { STAND_INS = 3 };
static struct stand_in {
    const char *process;
    uint32_t requests;
    uint64_t tokens;
    struct rpc_server *server;
} workers[STAND_INS] = {{.process = "worker"}, {.process = "worker-2"}, {.process = "worker-3"}};
static const char *silent; /* the process that does not answer in time */

/* moed-models waits half a second for each process, a loaded machine longer. */
enum error_code __real_control_health(const char *run, const char *process, int timeout_ms,
                                      Moed__V1__Reply **reply, struct error *e);
enum error_code __wrap_control_health(const char *run, const char *process, int timeout_ms,
                                      Moed__V1__Reply **reply, struct error *e);
enum error_code __wrap_control_health(const char *run, const char *process, int timeout_ms,
                                      Moed__V1__Reply **reply, struct error *e)
{
    (void)timeout_ms;
    if (silent && strcmp(process, silent) == 0)
        return ERROR_TIMEOUT;
    return __real_control_health(run, process, 60000, reply, e);
}

static void answer_health(void *arg, const uint8_t *request, size_t len, struct rpc_reply *out)
{
    const struct stand_in *w = arg;
    Moed__V1__HealthReply health = MOED__V1__HEALTH_REPLY__INIT;
    Moed__V1__Reply reply = MOED__V1__REPLY__INIT;
    (void)request, (void)len;
    health.ready = true;
    health.requests_running = w->requests;
    health.tokens_total = w->tokens;
    reply.abi = CONTROL_ABI;
    reply.body_case = MOED__V1__REPLY__BODY_HEALTH;
    reply.health = &health;
    out->data = malloc(moed__v1__reply__get_packed_size(&reply));
    out->len = moed__v1__reply__pack(&reply, out->data);
}

static void start_worker(const char *run, struct stand_in *w)
{
    char url[RUN_URL_BYTES], file[32];
    struct error e;
    snprintf(file, sizeof file, "%s.ctl", w->process);
    run_dir_url(run, file, url);
    assert_int_equal(run_dir_lock(run, w->process, &e), ERROR_OK);
    assert_int_equal(rpc_serve(url, answer_health, w, &w->server, &e), ERROR_OK);
}

static struct models looked_at;

static const struct model_facts *look(void)
{
    looked_at.looked_ns = 0;
    models_turn(&looked_at);
    return &looked_at.items[0]->facts;
}

/* The first of three workers has failed; the others serve. */
static void test_looks_at_all_workers(void **state)
{
    static struct models_settings settings = {.keep_s = -1, .budget_bytes = UINT64_MAX};
    static struct model model = {
        .facts = {.own = true, .state = MODEL_UP, .keep_ns = MODEL_FOREVER}, .deployment = "three"};
    struct metrics *metrics = metrics_new();
    char run[RUN_DIR_BYTES];
    struct error e;
    (void)state;
    setenv("XDG_RUNTIME_DIR", in_directory(""), 1);
    assert_int_equal(run_dir_path("three", run, &e), ERROR_OK);
    assert_int_equal(run_dir_create(run, &e), ERROR_OK);
    assert_int_equal(run_dir_lock(run, "supervise", &e), ERROR_OK);
    start_worker(run, &workers[1]);
    start_worker(run, &workers[2]);
    looked_at.settings = &settings;
    looked_at.up = metrics_gauge(metrics, "moed_test_models_up", NULL, "Models.");
    looked_at.items[looked_at.count++] = &model;
    snprintf(looked_at.run, sizeof looked_at.run, "%s", in_directory(""));
    pthread_mutex_init(&looked_at.lock, NULL);

    assert_false(look()->busy);
    workers[2].requests = 1;
    assert_true(look()->busy);
    workers[2].requests = 0;
    silent = "worker-2";
    assert_true(look()->busy); /* it may be idle, or not */
    silent = NULL;
    assert_false(look()->busy);

    uint64_t before = clock_ns();
    workers[1].tokens = 7;
    assert_true(look()->used_ns >= before);
    workers[1].tokens = 5;
    workers[2].tokens = 3;
    assert_true(look()->used_ns >= before);
    uint64_t used = look()->used_ns;
    assert_int_equal(look()->used_ns, used);
    assert_int_equal(model.facts.state, MODEL_UP);

    for (int i = 0; i < STAND_INS; i++)
        rpc_server_stop(workers[i].server);
    run_dir_sweep(run);
    assert_int_equal(rmdir(run), 0);
    assert_int_equal(rmdir(in_directory("moed")), 0);
    pthread_mutex_destroy(&looked_at.lock);
    metrics_free(metrics);
}

/* ---- The end ---- */

/* Writes its arguments to `calls`. `up` ends by SIGKILL alone, `down` fails for `stuck`. */
static const char program[] = "#!/bin/sh\n"
                              "echo \"$*\" >> \"$(dirname \"$0\")/calls\"\n"
                              "case $1-$2 in\n"
                              "up-*) trap '' INT TERM; exec sleep 600 ;;\n"
                              "down-stuck) echo 'moed: it does not stop'; exit 1 ;;\n"
                              "esac\n";

static struct models models;
static struct model items[] = {
    {.facts = {.own = true, .state = MODEL_UP}, .deployment = "gamma"},
    {.facts = {.own = true, .state = MODEL_STARTING}, .deployment = "alpha"},
    {.facts = {.own = true, .state = MODEL_UP}, .deployment = "stuck"},
    {.facts = {.own = false, .state = MODEL_UP}, .deployment = "other"},
};

static void write_program(void)
{
    FILE *f = fopen(models.moed, "we");
    assert_non_null(f);
    fputs(program, f);
    fclose(f);
    assert_int_equal(chmod(models.moed, 0700), 0);
}

static char *read_all(const char *path)
{
    static char text[1024];
    FILE *f = fopen(path, "re");
    assert_non_null(f);
    text[fread(text, 1, sizeof text - 1, f)] = '\0';
    fclose(f);
    return text;
}

/* A `moed up` that does not end keeps no deployment up, and what does not stop stays noted. */
static void test_up_that_hangs(void **state)
{
    struct error e;
    char path[RUN_PATH_BYTES];
    (void)state;
    setenv("XDG_RUNTIME_DIR", in_directory(""), 1);
    snprintf(models.moed, sizeof models.moed, "%s", in_directory("moed"));
    snprintf(models.run, sizeof models.run, "%s", in_directory(""));
    pthread_mutex_init(&models.lock, NULL);
    write_program();
    for (size_t i = 0; i < sizeof items / sizeof *items; i++)
        models.items[models.count++] = &items[i];
    char *const up[] = {models.moed, "up", "--name", "alpha", NULL};
    assert_int_equal(child_start(&models.child, up, &e), ERROR_OK);
    models.moving = &items[1];
    while (access(in_directory("calls"), F_OK) != 0)
        usleep(1000);
    models_stop_all(&models);
    assert_int_equal(models.child.pid, 0);
    const char *calls = read_all(in_directory("calls"));
    assert_non_null(strstr(calls, "down gamma\n"));
    assert_non_null(strstr(calls, "down alpha\n"));
    assert_non_null(strstr(calls, "down stuck\n"));
    assert_null(strstr(calls, "down other\n"));
    models_started_file(models.run, path);
    assert_string_equal(read_all(path), "stuck\n");
    pthread_mutex_destroy(&models.lock);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_reads_without_the_lock, make_directory,
                                        remove_directory),
        cmocka_unit_test_setup_teardown(test_names_of_what_is_left_out, make_directory,
                                        remove_directory),
        cmocka_unit_test_setup_teardown(test_looks_at_all_workers, make_directory,
                                        remove_directory),
        cmocka_unit_test_setup_teardown(test_up_that_hangs, make_directory, remove_directory),
    };
    alarm(60); /* instead of a wait without end */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
