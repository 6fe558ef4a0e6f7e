/* client/http/model/deployments.c: a frontend sees as many deployments as a folder has models. */
#include "client/http/model/deployments.h"

#include "daemon/run_dir.h"
#include "deploy/models/catalogue.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "temporary_directory.h"

/* This process holds their locks, as daemons would. */
static void make_running(unsigned number)
{
    char name[16], run[RUN_DIR_BYTES];
    struct error e;
    snprintf(name, sizeof name, "d%u", number);
    assert_int_equal(run_dir_path(name, run, &e), ERROR_OK);
    assert_int_equal(run_dir_create(run, &e), ERROR_OK);
    assert_int_equal(run_dir_lock(run, "memd", &e), ERROR_OK);
    assert_int_equal(run_dir_lock(run, "worker", &e), ERROR_OK);
}

static void remove_all(void)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s/moed'", directory);
    assert_int_equal(system(command), 0);
}

static void test_many(void **state)
{
    enum { MANY = 40 };
    static struct deployments d;
    struct loop loop;
    struct error e;
    unsigned running = 0;
    (void)state;
    _Static_assert(DEPLOYMENTS_MAX > CATALOGUE_MOST, "each model may have a deployment");
    unsetenv("MOED_RUN");
    setenv("XDG_RUNTIME_DIR", directory, 1);
    for (unsigned i = 0; i < MANY; i++)
        make_running(i);
    assert_int_equal(loop_init(&loop, &e), ERROR_OK);
    deployments_init(&d, &loop, "own", directory);
    deployments_look(&d);
    for (unsigned i = 0; i < d.count; i++)
        running += d.items[i]->running;
    assert_int_equal(d.count, MANY);
    assert_int_equal(running, MANY);
    remove_all();
    deployments_look(&d); /* they stay for a minute */
    assert_int_equal(d.count, MANY);
    assert_false(d.items[0]->running || d.items[MANY - 1]->running);
    deployments_fini(&d);
    loop_fini(&loop);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_many)};
    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
