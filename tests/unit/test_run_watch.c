/* When the supervisor takes its runtime directory for gone. */
#include "deploy/run_watch.h"

#include "base/clock.h"
#include "file_tree.h"

#include <sys/resource.h>
#include <unistd.h>

static char run[96], moved[96];

/* ROOT/base/run. */
static void open_watch(struct run_watch *w)
{
    struct error e;
    put("base/run/memd.ctl", "");
    snprintf(run, sizeof run, "%s/base/run", root);
    snprintf(moved, sizeof moved, "%s/base/moved", root);
    assert_int_equal(run_watch_open(w, run, &e), ERROR_OK);
    if (w->fd < 0)
        skip(); /* no inotify here */
    assert_true(run_watch_is_there(w, run));
}

static void close_watch(struct run_watch *w)
{
    if (w->fd >= 0)
        close(w->fd);
}

/* Without inotify. */
static void close_events(struct run_watch *w)
{
    close_watch(w);
    w->fd = -1;
}

/* A directory that is not at its path may be back before it is looked at again. */
static void test_moved_for_a_moment(void **state)
{
    static struct run_watch w;
    (void)state;
    open_watch(&w);
    for (int i = 0; i < 2; i++) {
        run_watch_clear(&w, run);
        assert_int_equal(rename(run, moved), 0);
        uint64_t before = clock_ns();
        run_watch_look(&w, run);
        assert_true(w.due_ns != UINT64_MAX && w.due_ns >= before + 1000000000u);
        assert_false(run_watch_is_there(&w, run));
        assert_int_equal(rename(moved, run), 0);
        assert_true(run_watch_is_there(&w, run));
        if (i == 0)
            close_events(&w);
    }
}

static void test_replaced(void **state)
{
    static struct run_watch w;
    (void)state;
    open_watch(&w);
    assert_int_equal(rename(run, moved), 0);
    assert_int_equal(mkdir(run, 0700), 0);
    assert_false(run_watch_is_there(&w, run));
    run_watch_look(&w, run);
    assert_true(w.due_ns != UINT64_MAX);
    close_watch(&w);
}

/* Nothing is gone: clients refuse it until the mode is right again. */
static void test_mode_of_parent(void **state)
{
    static struct run_watch w;
    char base[96];
    (void)state;
    open_watch(&w);
    snprintf(base, sizeof base, "%s/base", root);
    for (int i = 0; i < 2; i++) {
        run_watch_clear(&w, run);
        assert_int_equal(chmod(base, 0770), 0);
        run_watch_look(&w, run);
        assert_int_equal(w.due_ns, UINT64_MAX);
        assert_int_equal(chmod(base, 0700), 0);
        run_watch_look(&w, run);
        assert_true((w.due_ns == UINT64_MAX) == (w.fd >= 0));
        if (i == 0)
            close_events(&w);
    }
}

/* Without a descriptor it is not known whether the directory is there. */
static void test_no_descriptor(void **state)
{
    static struct run_watch w;
    struct rlimit before, none;
    (void)state;
    open_watch(&w);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    none = (struct rlimit){0, before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    bool there = run_watch_is_there(&w, run);
    run_watch_look(&w, run);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_true(there);
    assert_int_equal(w.due_ns, UINT64_MAX);
    close_watch(&w);
}

#define WITH_ROOT(test) cmocka_unit_test_setup_teardown(test, make_root, remove_root)

int main(void)
{
    const struct CMUnitTest tests[] = {WITH_ROOT(test_moved_for_a_moment), WITH_ROOT(test_replaced),
                                       WITH_ROOT(test_mode_of_parent),
                                       WITH_ROOT(test_no_descriptor)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
