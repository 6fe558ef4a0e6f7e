/* client/cli/train_target: what `moed train` does with a file that is there. */
#include "client/cli/train_target.h"

#include "client/cli/complain.h"
#include "client/cli/model_file.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <cmocka.h>

#include "temporary_directory.h"

enum { EXPERTS = 4, WIDTH = 32 };

/* In place of the command line's: --model is not tested here. */
void cli_complain(const char *format, ...)
{
    (void)format;
}

bool model_file_find(const char *argument, char out[PATH_MAX])
{
    (void)argument;
    out[0] = '\0';
    return false;
}

bool model_file_absolute(const char *path, char out[PATH_MAX])
{
    return model_file_find(path, out);
}

static struct trace *make_trace(void)
{
    const struct trace_shape shape = {
        .model = "made up",
        .n_layers = 1,
        .n_experts = EXPERTS,
        .n_used = 1,
        .d_model = WIDTH,
        .router = {.kind = ROUTER_SOFTMAX, .n_experts = EXPERTS, .n_used = 1, .scale = 1}};
    const struct trace_layer layer = {.n_segments = 1, .segment_bytes = 64};
    struct trace_writer *w;
    struct trace *trace = NULL;
    struct error e;
    if (trace_writer_new(in_directory("trace"), &shape, &layer, &w, &e) ||
        trace_writer_finish(w, &e) || trace_open(in_directory("trace"), &trace, &e))
        fail_msg("%s", e.text);
    return trace;
}

/* Opens the target, and closes it without a write. */
static bool opens(const struct trace *trace, bool force, struct train_target *t)
{
    static char path[256];
    snprintf(path, sizeof path, "%s", in_directory("file"));
    *t = (struct train_target){.out = path, .force = force};
    bool is_open = train_target_find(t) && train_target_open(t, "trace", trace);
    train_target_close(t);
    return is_open;
}

static void put(const char *text)
{
    struct error e;
    assert_int_equal(file_write(in_directory("file"), text, strlen(text), &e), ERROR_OK);
}

static void test_file_that_is_there(void **state)
{
    (void)state;
    struct trace *trace = make_trace();
    static struct train_target t;
    struct stat st;
    assert_true(opens(trace, false, &t));
    assert_false(t.replaces);
    put("");
    assert_true(opens(trace, false, &t));
    assert_false(t.replaces);
    put("a text");
    assert_false(opens(trace, false, &t));
    assert_true(opens(trace, true, &t)); /* Ctrl-C leaves it as it is */
    assert_true(t.replaces && !t.has_old);
    assert_int_equal(stat(in_directory("file"), &st), 0);
    assert_int_equal(st.st_size, strlen("a text"));
    trace_close(trace);
    unlink(in_directory("file"));
    unlink(in_directory("trace"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_file_that_is_there),
    };
    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
