/* moed-models: a scan of its folder, and its end (deploy/models/models.h). A program of the test
 * stands for `moed`: a real one hangs in `up` only where a supervisor hangs. */
#include "deploy/models/models.h"

#include "daemon/models_started.h"
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

static void write_old_model(const char *path)
{
    struct mkmodel_options o;
    struct mkmodel_result result;
    struct error e;
    struct timespec times[2];
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
    clock_gettime(CLOCK_REALTIME, &times[0]);
    times[0].tv_sec -= 60;
    times[1] = times[0];
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
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
        cmocka_unit_test_setup_teardown(test_up_that_hangs, make_directory, remove_directory),
    };
    alarm(60); /* instead of a wait without end */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
