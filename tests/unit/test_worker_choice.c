/* client/src/worker_choice: which worker gets a session or a prompt. memd is a stand-in of this
 * program that answers with the table `workers`; worker_choice_for_session asks it in any case. */
#include "client/src/worker_choice.h"

#include "base/clock.h"
#include "daemon/control.h"
#include "daemon/run_dir.h"
#include "daemon/supervisor_protocol.h"
#include "ipc/rpc.h"

#include "control.pb-c.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

enum { BLOCK = 256, LONGEST = 1300 /* blocks of a prompt */, WORKERS_MOST = SUPERVISE_WORKERS + 2 };

static char run[] = "/tmp/moed-test-choice-XXXXXX";
static struct rpc_server *memd;
static struct worker_choice *choice;
static char process[WORKER_NAME_BYTES];

static struct row {
    const char *process;
    uint32_t running, waiting;
    bool leaving;
} workers[WORKERS_MOST]; /* of the server's thread while a call waits */
static atomic_int calls;

static void answer(void *arg, const uint8_t *request, size_t len, struct rpc_reply *out)
{
    Moed__V1__WorkerState states[WORKERS_MOST], *list[WORKERS_MOST];
    Moed__V1__WorkersReply body = MOED__V1__WORKERS_REPLY__INIT;
    Moed__V1__Reply reply = MOED__V1__REPLY__INIT;
    for (int i = 0; i < WORKERS_MOST && workers[i].process; i++) {
        states[i] = (Moed__V1__WorkerState)MOED__V1__WORKER_STATE__INIT;
        states[i].process = (char *)workers[i].process;
        states[i].running = workers[i].running;
        states[i].waiting = workers[i].waiting;
        states[i].leaving = workers[i].leaving;
        list[body.n_workers++] = &states[i];
    }
    body.workers = list;
    reply.abi = CONTROL_ABI;
    reply.body_case = MOED__V1__REPLY__BODY_WORKERS;
    reply.workers = &body;
    out->data = malloc(moed__v1__reply__get_packed_size(&reply));
    out->len = moed__v1__reply__pack(&reply, out->data);
    atomic_fetch_add(&calls, 1);
}

/* worker_choice.c calls this one (the linker's --wrap). It gives memd 250 ms, then keeps the table
 * that it has; the stand-in gets as long as a loaded machine takes. */
enum error_code __real_control_call_at(const char *dir, const char *to, Moed__V1__Request *request,
                                       Moed__V1__Reply__BodyCase want, int timeout_ms,
                                       Moed__V1__Reply **reply, struct error *e);
enum error_code __wrap_control_call_at(const char *dir, const char *to, Moed__V1__Request *request,
                                       Moed__V1__Reply__BodyCase want, int timeout_ms,
                                       Moed__V1__Reply **reply, struct error *e);
enum error_code __wrap_control_call_at(const char *dir, const char *to, Moed__V1__Request *request,
                                       Moed__V1__Reply__BodyCase want, int timeout_ms,
                                       Moed__V1__Reply **reply, struct error *e)
{
    if (memd)
        timeout_ms = 60000;
    return __real_control_call_at(dir, to, request, want, timeout_ms, reply, e);
}

static int setup(void **state)
{
    char url[RUN_URL_BYTES];
    run_dir_url(run, "memd.ctl", url);
    choice = worker_choice_new();
    return !choice || rpc_serve(url, answer, NULL, &memd, NULL);
}

static int teardown(void **state)
{
    worker_choice_free(choice);
    rpc_server_stop(memd);
    memd = NULL;
    return 0;
}

/* A worker with so many requests, some of which wait. */
static struct row has(const char *name, uint32_t load)
{
    return (struct row){.process = name, .running = load / 2, .waiting = load - load / 2};
}

static struct row leaves(const char *name)
{
    return (struct row){.process = name, .leaving = true};
}

/* memd's answer from now on, which the choice has heard. */
#define KNOW(...) know((struct row[WORKERS_MOST]){__VA_ARGS__})
static void know(const struct row rows[WORKERS_MOST])
{
    int before = atomic_load(&calls);
    memcpy(workers, rows, sizeof workers);
    worker_choice_for_session(choice, run, process);
    assert_int_equal(atomic_load(&calls), before + 1);
}

/* The worker for a prompt of n bytes: the letter, over and over. */
static const char *salted_prompt(const char *preferred, char letter, size_t n, uint64_t salt)
{
    static char text[LONGEST * BLOCK];
    const struct choice_prompt p = {text, n, salt};
    assert_true(n <= sizeof text);
    memset(text, letter, n);
    worker_choice_for_prompt(choice, preferred, &p, process);
    return process;
}

static const char *prompt(const char *preferred, char letter, size_t n)
{
    return salted_prompt(preferred, letter, n, 0);
}

static const char *no_prompt(const char *preferred)
{
    worker_choice_for_prompt(choice, preferred, &(struct choice_prompt){0}, process);
    return process;
}

static void the_least_busy(void **state)
{
    KNOW(has("worker", 2), has("worker-2", 1), has("worker-3", 2));
    assert_string_equal(process, "worker-2");
    assert_string_equal(no_prompt("worker-3"), "worker-2");
    KNOW(has("worker", 2), leaves("worker-2"));
    assert_string_equal(process, "worker");
}

static void of_equal_ones_the_preferred(void **state)
{
    for (int i = 0; i < 3; i++) { /* any but it would be chosen by chance */
        KNOW(has("worker", 0), has("worker-2", 0), has("worker-3", 0));
        assert_string_equal(no_prompt("worker-2"), "worker-2");
    }
    KNOW(has("worker", 0), has("worker-2", 0), has("worker-3", 1));
    assert_string_not_equal(no_prompt("worker-3"), "worker-3");
    assert_string_not_equal(no_prompt("worker-9"), "worker-3");
}

static void a_prompt_counts_until_memd_is_asked(void **state)
{
    KNOW(has("worker", 0), has("worker-2", 0));
    assert_string_equal(no_prompt("worker"), "worker");
    assert_string_equal(no_prompt("worker"), "worker-2");
    KNOW(has("worker", 0), has("worker-2", 0));
    assert_string_equal(no_prompt("worker"), "worker");
}

/* For some seconds: where the machine has taken as long, nothing is said of it. */
static void a_silent_worker_gets_no_prompts(void **state)
{
    enum { SHORT_NS = 3000000000u };
    uint64_t begin = clock_ns();
    KNOW(has("worker", 5), has("worker-2", 0), has("worker-3", 9));
    assert_string_equal(prompt("worker", 'a', 10 * BLOCK), "worker-2");
    worker_choice_avoid(choice, "worker-2");
    char after_one[WORKER_NAME_BYTES], after_two[WORKER_NAME_BYTES];
    strcpy(after_one, prompt("worker-2", 'a', 10 * BLOCK));
    worker_choice_avoid(choice, "worker");
    worker_choice_avoid(choice, "worker-2"); /* again */
    KNOW(has("worker", 5), has("worker-2", 0), has("worker-3", 9));
    assert_string_equal(process, "worker-2"); /* sessions try it */
    assert_true(worker_choice_knows(choice, "worker-2"));
    strcpy(after_two, no_prompt("worker"));
    worker_choice_avoid(choice, "worker-3");
    no_prompt("worker");
    if (clock_ns() - begin > SHORT_NS)
        return;
    assert_string_equal(after_one, "worker");
    assert_string_equal(after_two, "worker-3");
    assert_string_equal(process, "");
}

static void who_takes_requests(void **state)
{
    KNOW(has("worker", 0), has("worker-2", 0), leaves("worker-3"), has("http", 0),
         has("worker-of-a-long-name", 0));
    assert_true(worker_choice_knows(choice, "worker"));
    assert_true(worker_choice_knows(choice, "worker-2"));
    assert_false(worker_choice_knows(choice, "worker-3"));
    assert_false(worker_choice_knows(choice, "http"));
    assert_false(worker_choice_knows(choice, "worker-of-a-long-name"));
    assert_false(worker_choice_is_only(choice, "worker"));
    KNOW(has("worker", 0), leaves("worker-2"));
    assert_true(worker_choice_is_only(choice, "worker"));
    assert_false(worker_choice_is_only(choice, "worker-2"));
    KNOW(leaves("worker"));
    assert_string_equal(process, "worker"); /* a session waits for the first one */
    assert_string_equal(no_prompt("worker"), "");
}

static void no_more_workers_than_there_can_be(void **state)
{
    struct row rows[WORKERS_MOST];
    for (int i = 0; i < WORKERS_MOST; i++)
        rows[i] = (struct row){.process = "worker-2"};
    know(rows);
    assert_string_equal(process, "worker-2");
}

static void a_prompt_returns_to_its_worker(void **state)
{
    KNOW(has("worker", 0), has("worker-2", 5));
    assert_string_equal(prompt("", 'a', 4 * BLOCK), "worker");
    KNOW(has("worker", 1), has("worker-2", 0));
    assert_string_equal(prompt("worker-2", 'a', 4 * BLOCK), "worker");
    KNOW(has("worker", 2), has("worker-2", 0)); /* it has clearly more to do */
    assert_string_equal(prompt("", 'a', 4 * BLOCK), "worker-2");
    KNOW(has("worker", 0), has("worker-2", 1)); /* and now that one has the prompt, too */
    assert_string_equal(prompt("", 'a', 4 * BLOCK), "worker-2");
    KNOW(has("worker", 0), has("worker-3", 0)); /* it has left */
    assert_string_equal(prompt("worker-3", 'a', 4 * BLOCK), "worker-3");
}

static void half_of_a_prompt_is_enough(void **state)
{
    KNOW(has("worker", 0), has("worker-2", 5));
    assert_string_equal(prompt("", 'a', 4 * BLOCK), "worker");
    KNOW(has("worker", 1), has("worker-2", 0));
    assert_string_equal(prompt("", 'a', 8 * BLOCK), "worker");
    KNOW(has("worker", 0), has("worker-2", 5));
    assert_string_equal(prompt("", 'b', 4 * BLOCK), "worker");
    KNOW(has("worker", 1), has("worker-2", 0));
    assert_string_equal(prompt("", 'b', 9 * BLOCK), "worker-2");
    KNOW(has("worker", 1), has("worker-2", 0));
    assert_string_equal(prompt("", 'b', BLOCK - 1), "worker-2"); /* no whole block */
}

/* A worker that computed it for another salt has nothing of it. */
static void a_prompt_of_another_salt_is_another(void **state)
{
    KNOW(has("worker", 0), has("worker-2", 5));
    assert_string_equal(salted_prompt("", 'a', 4 * BLOCK, 1), "worker");
    KNOW(has("worker", 1), has("worker-2", 0));
    assert_string_equal(salted_prompt("", 'a', 4 * BLOCK, 2), "worker-2");
    KNOW(has("worker", 1), has("worker-2", 0));
    assert_string_equal(salted_prompt("", 'a', 4 * BLOCK, 1), "worker");
}

/* Also where it passes a power of two of blocks. */
static void a_conversation_stays_as_it_grows(void **state)
{
    static const size_t turns[] = {3, 5, 9, 15, 30, 60, 120, 240, 480, 900, LONGEST - 1};
    KNOW(has("worker", 0), has("worker-2", 5));
    for (unsigned i = 0; i < sizeof turns / sizeof *turns; i++) {
        assert_string_equal(prompt("worker-2", 'a', turns[i] * BLOCK + 7), "worker");
        KNOW(has("worker", 1), has("worker-2", 0));
    }
}

static void the_oldest_prompts_are_forgotten(void **state)
{
    KNOW(has("worker", 0), has("worker-2", 5));
    assert_string_equal(prompt("", 'a', BLOCK), "worker");
    for (int i = 0; i < 1024; i++) {
        char text[BLOCK] = {0};
        memcpy(text, &i, sizeof i);
        const struct choice_prompt p = {text, sizeof text, 0};
        worker_choice_for_prompt(choice, "", &p, process);
        if (i == 1022) {
            KNOW(has("worker", 1), has("worker-2", 0));
            assert_string_equal(prompt("", 'a', BLOCK), "worker");
        }
    }
    KNOW(has("worker", 1), has("worker-2", 0));
    assert_string_equal(prompt("", 'a', BLOCK), "worker-2");
}

static void a_refresh_asks_memd(void **state)
{
    memcpy(workers, (struct row[WORKERS_MOST]){has("worker-2", 0)}, sizeof workers);
    atomic_store(&calls, 0);
    worker_choice_refresh(choice, run);
    assert_int_equal(atomic_load(&calls), 1);
    assert_true(worker_choice_is_only(choice, "worker-2"));
}

/* ---- Without memd ---- */

static int without_memd(void **state)
{
    choice = worker_choice_new();
    return !choice;
}

static void nobody_is_known(void **state)
{
    for (int i = 0; i < 2; i++) {
        worker_choice_for_session(choice, i ? run : "", process); /* "": not attached yet */
        assert_string_equal(process, "worker");
        assert_string_equal(prompt("worker", 'a', BLOCK), "");
        assert_false(worker_choice_knows(choice, "worker"));
    }
}

/* Is worker-2 until the other end of the socket is closed, also by the end of its process. */
static void hold_worker_2(int socket)
{
    char byte = run_dir_lock(run, "worker-2", NULL) == ERROR_OK;
    if (write(socket, &byte, 1) == 1)
        (void)!read(socket, &byte, 1);
    _exit(0);
}

static void workers_are_found_by_their_pid_files(void **state)
{
    int ends[2];
    char locked = 0;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    pid_t pid = fork();
    if (pid == 0) {
        close(ends[0]);
        hold_worker_2(ends[1]);
    }
    close(ends[1]);
    ssize_t n = read(ends[0], &locked, 1); /* 0: the child has ended */
    worker_choice_for_session(choice, run, process);
    close(ends[0]);
    assert_true(pid > 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_int_equal(n, 1);
    assert_true(locked);
    assert_string_equal(process, "worker-2");
    assert_true(worker_choice_is_only(choice, "worker-2"));
}

static int make_run_dir(void **state)
{
    return !mkdtemp(run);
}

static int remove_run_dir(void **state)
{
    run_dir_sweep(run);
    return rmdir(run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(nobody_is_known, without_memd, teardown),
        cmocka_unit_test_setup_teardown(workers_are_found_by_their_pid_files, without_memd,
                                        teardown),
        cmocka_unit_test_setup_teardown(the_least_busy, setup, teardown),
        cmocka_unit_test_setup_teardown(of_equal_ones_the_preferred, setup, teardown),
        cmocka_unit_test_setup_teardown(a_prompt_counts_until_memd_is_asked, setup, teardown),
        cmocka_unit_test_setup_teardown(a_silent_worker_gets_no_prompts, setup, teardown),
        cmocka_unit_test_setup_teardown(who_takes_requests, setup, teardown),
        cmocka_unit_test_setup_teardown(no_more_workers_than_there_can_be, setup, teardown),
        cmocka_unit_test_setup_teardown(a_prompt_returns_to_its_worker, setup, teardown),
        cmocka_unit_test_setup_teardown(half_of_a_prompt_is_enough, setup, teardown),
        cmocka_unit_test_setup_teardown(a_prompt_of_another_salt_is_another, setup, teardown),
        cmocka_unit_test_setup_teardown(a_conversation_stays_as_it_grows, setup, teardown),
        cmocka_unit_test_setup_teardown(the_oldest_prompts_are_forgotten, setup, teardown),
        cmocka_unit_test_setup_teardown(a_refresh_asks_memd, setup, teardown),
    };
    return cmocka_run_group_tests(tests, make_run_dir, remove_run_dir);
}
