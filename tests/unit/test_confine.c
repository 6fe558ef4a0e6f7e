/* lib/confine: what is forbidden fails, in every thread; what a daemon does goes on. Each case runs
 * in a child, which the test confines. */
#include "confine/confine.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

static bool forbidden(long result)
{
    return result == -1 && errno == EPERM;
}

static void *none(void *arg)
{
    return arg;
}

/* 0, or the number of the check that failed. */
static int check_forbidden(void)
{
    char *argv[] = {"true", NULL};
    if (!forbidden(execv("/bin/true", argv)))
        return 1;
    pid_t pid = fork();
    if (pid == 0)
        _exit(0);
    if (!forbidden(pid))
        return 2;
    if (!forbidden(socket(AF_INET, SOCK_STREAM, 0)))
        return 3;
    if (!forbidden(ptrace(PTRACE_TRACEME, 0, NULL, NULL)))
        return 4;
    if (!forbidden(syscall(SYS_io_uring_setup, 1, NULL)))
        return 6;
    return forbidden(setuid(0)) ? 0 : 5;
}

static int check_allowed(void)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, none, NULL) != 0 || pthread_join(thread, NULL) != 0)
        return 11;
    int pair[2], memory = memfd_create("test", MFD_CLOEXEC);
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) != 0 || socket(AF_UNIX, SOCK_STREAM, 0) < 0)
        return 12;
    if (memory < 0 || ftruncate(memory, 4096) != 0 ||
        mmap(NULL, 4096, PROT_READ, MAP_SHARED, memory, 0) == MAP_FAILED)
        return 13;
    FILE *f = fopen("/proc/self/status", "re");
    return f && fclose(f) == 0 ? 0 : 14;
}

static pthread_barrier_t confined;

static void *check_in_thread(void *arg)
{
    pthread_barrier_wait(&confined); /* it was there before */
    *(int *)arg = check_forbidden();
    return NULL;
}

static int child_main(void)
{
    pthread_t thread;
    int in_thread = -1;
    pthread_barrier_init(&confined, NULL, 2);
    if (pthread_create(&thread, NULL, check_in_thread, &in_thread) != 0)
        return 20;
    confine_daemon(false);
    pthread_barrier_wait(&confined);
    pthread_join(thread, NULL);
    int failed = check_forbidden();
    if (!failed)
        failed = check_allowed();
    return failed ? failed : in_thread ? 30 + in_thread : 0;
}

static void test_confined(void **state)
{
#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
    skip();
#endif
    pid_t pid = fork();
    if (pid == 0)
        _exit(child_main());
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_confined)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
