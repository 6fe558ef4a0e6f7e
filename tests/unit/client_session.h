/* A session of libmoed with a stand-in worker (stand_in_worker.h) for each test, in a run directory
 * of the program's own; for test_client.c, test_client_requests.c and
 * test_client_resume.c. */
#ifndef MOED_TESTS_CLIENT_SESSION_H
#define MOED_TESTS_CLIENT_SESSION_H

#include "client/include/moed.h"
#include "tests/unit/stand_in_worker.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

/* The tests wait for what they expect, and CTest for the tests: no verdict depends on the machine's
 * load. */
enum { WINDOW = 8, FOR_EVER = -1, LONG_MS = 3600000 };

static char run_dir[] = "/tmp/moed-test-client-XXXXXX";
static struct stand_in worker;
static struct moed_session *session;

static inline int make_run_dir(void **state)
{
    return !mkdtemp(run_dir) || setenv("MOED_RUN", run_dir, 1);
}

static inline int remove_run_dir(void **state)
{
    run_dir_sweep(run_dir);
    rmdir(run_dir);
    return 0;
}

static inline int setup(void **state)
{
    stand_in_start(&worker, run_dir, WINDOW);
    struct moed_attach_options options = {
        .size = sizeof options, .client = "test", .timeout_ms = LONG_MS, .resume_ms = -1};
    struct moed_error error;
    if (moed_attach(&options, &session, &error)) {
        fprintf(stderr, "%s\n", error.message);
        return -1;
    }
    return 0;
}

static inline int teardown(void **state)
{
    moed_detach(session);
    stand_in_stop(&worker);
    session = NULL;
    return 0;
}

static inline struct moed_generate_options prompt_of(const char *text)
{
    return (struct moed_generate_options){
        .size = sizeof(struct moed_generate_options), .prompt = text, .prompt_bytes = strlen(text)};
}

static inline struct moed_request *start(const char *prompt)
{
    struct moed_generate_options options = prompt_of(prompt);
    struct moed_request *r = NULL;
    struct moed_error error;
    assert_int_equal(moed_generate_start(session, &options, &r, &error), MOED_OK);
    return r;
}

/* A question whose answer comes behind all that the worker has sent, and which the worker reads
 * behind all that this process has sent. */
static inline void ask_something(struct moed_session *s)
{
    uint32_t *ids;
    size_t n;
    assert_int_equal(moed_tokenize(s, "x", 1, 0, &ids, &n, NULL), MOED_OK);
    moed_free(ids);
}

#define WAIT_UNTIL(condition)                                                                      \
    while (!(condition))                                                                           \
    pause_ms(1)

struct collected {
    uint32_t events, stop_after;
    bool in_order;
};

static inline int collect(void *arg, const struct moed_event *event)
{
    struct collected *c = arg;
    char text[16];
    size_t len = (size_t)snprintf(text, sizeof text, "%u ", c->events);
    c->in_order = c->in_order && event->kind == MOED_EVENT_TOKENS && event->token_count == 1 &&
                  event->tokens[0] == c->events && event->text_bytes == len &&
                  memcmp(event->text, text, len) == 0;
    c->events++;
    return c->events == c->stop_after;
}

#define WITH_WORKER(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

#endif
