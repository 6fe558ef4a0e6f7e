#include "check.h"

#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#else
#define __sanitizer_set_report_path(path) ((void)(path))
#endif

struct outcome run_elsewhere(void (*f)())
{
    struct outcome o = {};
    int pipe_ends[2];
    size_t n = 0;
    ssize_t got;
    CHECK(pipe(pipe_ends) == 0);
    fflush(nullptr);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        dup2(pipe_ends[1], STDERR_FILENO);
        close(pipe_ends[0]);
        close(pipe_ends[1]);
        __sanitizer_set_report_path(
            "stderr"); /* a report in a file counts as a failure, but f may be meant to fail */
        f();
        fflush(nullptr);
        _exit(0); /* exit handlers may wait for threads that a child does not have */
    }
    close(pipe_ends[1]);
    while ((got = read(pipe_ends[0], o.text + n, sizeof o.text - 1 - n)) > 0)
        n += (size_t)got;
    close(pipe_ends[0]); /* drops the rest */
    CHECK(waitpid(pid, &o.status, 0) == pid);
    return o;
}

static bool wanted(const char *name, int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], name) == 0)
            return true;
    return argc == 1;
}

int run_tests(const struct test *tests, size_t n, int argc, char **argv)
{
    unsigned n_failed = 0;
    for (size_t i = 0; i < n; i++) {
        if (!wanted(tests[i].name, argc, argv))
            continue;
        struct outcome o = run_elsewhere(tests[i].run);
        bool good = WIFEXITED(o.status) && WEXITSTATUS(o.status) == 0;
        printf("%s %s\n%s", good ? "ok    " : "FAILED", tests[i].name, good ? "" : o.text);
        n_failed += !good;
    }
    printf("%u failed\n", n_failed);
    return n_failed != 0;
}
