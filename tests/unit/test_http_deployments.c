/* The table of deployments of moed-http (client/http/model/deployments.h): those that have gone
 * leave it, with their threads, descriptors and sessions. Each deployment is a process of its own,
 * which has the locks of a memd and a worker, and a stand-in worker. */
#include "client/http/model/deployments.h"
#include "process_counts.h"
#include "tests/unit/stand_in_worker.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

enum { DEPLOYMENTS = 4 };

struct deployed {
    char name[16];
    pid_t pid;
    int to, from; /* pipes: a byte starts it, a byte says that it runs */
};

static char folder[] = "/tmp/moed-test-XXXXXX";
static struct loop loop;
static struct deployments all;
static struct deployed deployed[DEPLOYMENTS];
static struct deployed again[2]; /* one deployment, one after the other */

static _Noreturn void deployed_main(const struct deployed *d, int in, int out)
{
    static struct stand_in worker;
    char run[RUN_DIR_BYTES], byte;
    struct error e;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (read(in, &byte, 1) != 1 || run_dir_path(d->name, run, &e) || run_dir_create(run, &e) ||
        run_dir_lock(run, "memd", &e) || run_dir_lock(run, "worker", &e))
        _exit(1);
    stand_in_start(&worker, run, 8);
    if (write(out, &byte, 1) != 1)
        _exit(1);
    for (;;)
        pause();
}

/* Before this process has threads. */
static void prepare(struct deployed *d, const char *name, unsigned number)
{
    int to[2], from[2];
    assert_int_equal(pipe2(to, O_CLOEXEC) | pipe2(from, O_CLOEXEC), 0);
    snprintf(d->name, sizeof d->name, "%s-%u", name, number);
    d->pid = fork();
    if (d->pid == 0) {
        close(to[1]);
        deployed_main(d, to[0], from[1]);
    }
    close(to[0]);
    close(from[1]);
    d->to = to[1];
    d->from = from[0];
}

static void run_it(const struct deployed *d)
{
    char byte = 0;
    assert_int_equal(write(d->to, &byte, 1), 1);
    assert_int_equal(read(d->from, &byte, 1), 1);
    close(d->to);
    close(d->from);
}

static void end_it(const struct deployed *d)
{
    char run[RUN_DIR_BYTES];
    int status;
    kill(d->pid, SIGKILL);
    assert_int_equal(waitpid(d->pid, &status, 0), d->pid);
    assert_int_equal(run_dir_path(d->name, run, NULL), ERROR_OK);
    run_dir_sweep(run);
    assert_int_equal(rmdir(run), 0);
}

struct attaching {
    struct turn turn; /* first */
    struct deployment *deployment;
    enum moed_code code;
    bool done;
};

static void attach_work(struct job *job)
{
    struct attaching *a = (struct attaching *)job;
    struct moed_error error;
    a->code = deployment_attach(a->deployment, &error);
}

/* On the thread of questions. */
static void ask_work(struct job *job)
{
    struct attaching *a = (struct attaching *)job;
    struct moed_error error;
    a->code = deployment_attach_asking(a->deployment, &error);
}

static void ask_done(struct turn *turn)
{
    ((struct attaching *)turn)->done = true;
}

static void ask(struct deployment *d)
{
    struct error e;
    struct attaching a = {.turn = {.job.work = ask_work, .done = ask_done}, .deployment = d};
    assert_int_equal(deployment_post_question(d, 1, &a.turn, &e), ERROR_OK);
    while (!a.done)
        loop_wait(&loop, -1);
    assert_int_equal(a.code, MOED_OK);
    assert_non_null(d->asking.session);
}

static void attach_done(struct job *job)
{
    struct attaching *a = (struct attaching *)job;
    deployments_look(&all); /* frees nothing whose job is in `done` */
    a->done = true;
}

static void attach(struct deployment *d)
{
    struct attaching a = {.turn.job = {.work = attach_work, .done = attach_done}, .deployment = d};
    jobs_post(&d->queue, &a.turn.job);
    while (!a.done)
        loop_wait(&loop, -1);
    assert_int_equal(a.code, MOED_OK);
    assert_non_null(d->answering.session);
}

static void await_retired(const struct deployment *d)
{
    while (!d->retired)
        loop_wait(&loop, -1);
    assert_null(d->answering.session);
    assert_null(d->asking.session);
}

static void come_and_go(const struct deployed *d)
{
    run_it(d);
    deployments_look(&all);
    assert_int_equal(all.count, 1);
    struct deployment *it = all.items[0];
    assert_true(strcmp(it->name, d->name) == 0 && it->running);
    attach(it);
    ask(it);
    end_it(d);
    deployments_look(&all);
    deployments_look(&all);
    assert_true(all.count == 1 && !it->running && it->answering.session); /* for a minute */
    all.keep_gone_ns = 0;
    deployment_hold(it);
    deployments_look(&all);
    deployments_look(&all);
    assert_true(all.count == 1 && it->answering.session);
    deployment_release(it);
    deployments_look(&all);
    await_retired(it);
    deployments_look(&all);
    assert_int_equal(all.count, 0);
    all.keep_gone_ns = 60000000000u;
}

static void test_come_and_go(void **state)
{
    int fds = 0, threads = 0;
    (void)state;
    for (unsigned i = 0; i < DEPLOYMENTS; i++) {
        come_and_go(&deployed[i]);
        if (i == 0) { /* what is made once is there */
            fds = open_fds() - 2 * (DEPLOYMENTS - 1);
            threads = running_threads();
        }
    }
    assert_int_equal(open_fds(), fds);
    assert_int_equal(running_threads(), threads);
}

/* One whose sessions have ended comes back and gets another, which nobody holds: that ends on its
 * thread, too, before it is freed. */
static void test_comes_back(void **state)
{
    (void)state;
    all.keep_gone_ns = 0;
    run_it(&again[0]);
    deployments_look(&all);
    assert_int_equal(all.count, 1);
    struct deployment *it = all.items[0];
    attach(it);
    all.demand.models = calloc(1, sizeof *all.demand.models);
    assert_non_null(all.demand.models);
    all.demand.models[0] = (struct demand_model){.id = "linked", .state = DEMAND_UP};
    snprintf(all.demand.models[0].deployment, DEMAND_NAME_BYTES, "%s", it->name);
    all.demand.count = 1;
    deployments_look(&all);
    assert_int_equal(all.demand.models[0].state, DEMAND_UP);
    end_it(&again[0]);
    deployments_look(&all);
    await_retired(it);
    run_it(&again[1]);
    deployments_look(&all);
    assert_true(all.count == 1 && it->running);
    assert_int_equal(all.demand.models[0].state, DEMAND_OFF); /* it may have another file */
    attach(it);
    ask(it);
    end_it(&again[1]);
    deployments_look(&all);
    assert_int_equal(all.count, 1);
    await_retired(it);
    deployments_look(&all);
    assert_int_equal(all.count, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_come_and_go),
                                       cmocka_unit_test(test_comes_back)};
    char runs[sizeof folder + 8];
    struct error e;
    if (!mkdtemp(folder) || setenv("XDG_RUNTIME_DIR", folder, 1) || unsetenv("MOED_RUN"))
        return 1;
    for (unsigned i = 0; i < DEPLOYMENTS; i++)
        prepare(&deployed[i], "model", i);
    for (unsigned i = 0; i < 2; i++)
        prepare(&again[i], "again", 0);
    if (loop_init(&loop, &e))
        return 1;
    deployments_init(&all, &loop, "own", "/none");
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    deployments_fini(&all);
    loop_fini(&loop);
    snprintf(runs, sizeof runs, "%s/moed", folder);
    rmdir(runs);
    rmdir(folder);
    return failed;
}
