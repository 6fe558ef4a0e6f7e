/* deploy/models/turn.c: the end of moed-models. A program of the test stands for `moed`; a real one
 * that hangs in `up` needs a supervisor that hangs. */
#include "deploy/models/models.h"

#include "daemon/models_started.h"
#include "temporary_directory.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/stat.h>
#include <cmocka.h>

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
        cmocka_unit_test_setup_teardown(test_up_that_hangs, make_directory, remove_directory),
    };
    alarm(60); /* instead of a wait without end */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
