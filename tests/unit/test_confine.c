/* lib/confine: what is forbidden fails, in every thread; what a process needs goes on. Each case
 * runs in a child, which it confines. tests/confine tries the real daemons. */
#include "confine/calls.h"
#include "confine/files.h"
#include "confine/memory.h"
#include "confine/privileges.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <netinet/in.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

static bool forbidden(long result)
{
    return result == -1 && errno == EPERM;
}

/* Runs a case in a child; it returns 0, or the number of the check that failed. */
static void in_child(int (*run)(void))
{
#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
    skip();
#endif
    int status;
    pid_t pid = fork();
    if (pid == 0)
        _exit(run());
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

/* ---- Calls ---- */

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
    struct rlimit most;
    if (!forbidden(prlimit(getppid(), RLIMIT_CPU, NULL, &most)))
        return 7; /* with a new limit it would end that process */
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
    if (!f || fclose(f) != 0)
        return 14;
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || setrlimit(RLIMIT_NOFILE, &limit) != 0)
        return 15;
    return fchmod(memory, 0600) == 0 ? 0 : 16;
}

static pthread_barrier_t confined;

static void *check_in_thread(void *arg)
{
    pthread_barrier_wait(&confined); /* it was there before */
    *(int *)arg = check_forbidden();
    return NULL;
}

static int confined_calls(enum confine_calls kind)
{
    pthread_t thread;
    int in_thread = -1;
    pthread_barrier_init(&confined, NULL, 2);
    if (pthread_create(&thread, NULL, check_in_thread, &in_thread) != 0)
        return 20;
    confine_calls(kind, false);
    pthread_barrier_wait(&confined);
    pthread_join(thread, NULL);
    int failed = check_forbidden();
    if (!failed)
        failed = check_allowed();
    return failed ? failed : in_thread ? 30 + in_thread : 0;
}

static int driver(void)
{
    return confined_calls(CONFINE_DRIVER);
}

static int daemon_process(void)
{
    int failed = confined_calls(CONFINE_DAEMON);
    if (failed)
        return failed;
    if (!forbidden(syscall(SYS_personality, 0))) /* is in no list */
        return 41;
    int memory = memfd_create("test", MFD_CLOEXEC);
    if (!forbidden(fchmod(memory, 04777)) || !forbidden(fchmod(memory, 0644)))
        return 43;
    return rename("/tmp/moed-none", "/tmp/moed-none-2") == -1 && errno == ENOENT ? 0 : 42;
}

static int daemon_with_uring(void)
{
    confine_calls(CONFINE_DAEMON, true);
    return syscall(SYS_io_uring_setup, 0, NULL) == -1 && errno != EPERM ? 0 : 1;
}

static int frontend(void)
{
    confine_calls(CONFINE_FRONTEND, false);
    if (!forbidden(rename("/tmp/moed-none", "/tmp/moed-none-2")))
        return 1;
    if (!forbidden(syscall(SYS_memfd_create, "x", 0)))
        return 2;
    return socket(AF_UNIX, SOCK_STREAM, 0) >= 0 ? 0 : 3;
}

static int reader(void)
{
    int ends[2];
    char c = 'x';
    if (pipe(ends) != 0)
        return 1;
    confine_calls(CONFINE_READER, false);
    if (!forbidden(open("/dev/null", O_RDONLY)))
        return 2;
    if (!forbidden(socket(AF_UNIX, SOCK_STREAM, 0)) || !forbidden(fork()))
        return 3;
    if (!forbidden(kill(getppid(), 0)) || !forbidden(unlink("/tmp/moed-none")))
        return 4;
    void *memory = malloc(8 << 20); /* from mmap */
    if (!memory || write(ends[1], &c, 1) != 1 || read(ends[0], &c, 1) != 1)
        return 5;
    free(memory);
    return 0;
}

static void test_driver(void **state)
{
    in_child(driver);
}

static void test_daemon(void **state)
{
    in_child(daemon_process);
}

static void test_daemon_with_uring(void **state)
{
    in_child(daemon_with_uring);
}

static void test_frontend(void **state)
{
    in_child(frontend);
}

static void test_reader(void **state)
{
    in_child(reader);
}

/* ---- Files ---- */

static char base[64];

static void path_in(const char *name, char out[128])
{
    snprintf(out, 128, "%s/%s", base, name);
}

static int make_files(void **state)
{
    static const char *const folders[] = {"run", "open", "closed"};
    char path[128];
    strcpy(base, "/tmp/moed-test-confine.XXXXXX");
    if (!mkdtemp(base))
        return -1;
    for (int i = 0; i < 3; i++) {
        path_in(folders[i], path);
        if (mkdir(path, 0700) != 0)
            return -1;
        strcat(path, "/file");
        close(open(path, O_CREAT | O_WRONLY, 0600));
    }
    return 0;
}

static int remove_files(void **state)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", base);
    return system(command);
}

/* errno of opening BASE/name; 0: it opens. */
static int open_errno(const char *name, int flags)
{
    char path[128];
    path_in(name, path);
    int fd = open(path, flags | O_CLOEXEC, 0600);
    if (fd < 0)
        return errno;
    close(fd);
    return 0;
}

static int bind_errno(const char *name)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    snprintf(to.sun_path, sizeof to.sun_path, "%s/%s", base, name);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    return bind(fd, (struct sockaddr *)&to, sizeof to) == 0 ? 0 : errno;
}

static int confine_to_run_and_open(void)
{
    struct confine_files f;
    char run[128], open_one[128], file[128];
    path_in("run", run);
    path_in("open", open_one);
    path_in("closed/file", file);
    confine_files_begin(&f);
    confine_files_allow_daemon(&f, run);
    confine_files_allow(&f, open_one, CONFINE_READ);
    confine_files_allow(&f, NULL, CONFINE_READ);
    confine_files_allow(&f, "/none/such", CONFINE_READ | CONFINE_WRITE);
    int before = open(file, O_RDONLY);
    confine_files_end(&f);
    return before;
}

static int files(void)
{
    char c;
    int before = confine_to_run_and_open();
    if (open_errno("closed/file", O_RDONLY) != EACCES || open_errno("closed", O_RDONLY) != EACCES)
        return 1;
    if (read(before, &c, 1) != 0) /* what was open stays open */
        return 2;
    if (open_errno("open/file", O_RDONLY) || open_errno("open", O_RDONLY) ||
        open_errno("open/file", O_WRONLY) != EACCES ||
        open_errno("open/new", O_WRONLY | O_CREAT) != EACCES)
        return 3;
    if (open_errno("run/file", O_RDWR | O_TRUNC) || open_errno("run/new", O_WRONLY | O_CREAT) ||
        bind_errno("run/socket") || bind_errno("open/socket") != EACCES)
        return 4;
    FILE *status = fopen("/proc/self/status", "re");
    if (!status || open("/etc/passwd", O_RDONLY) != -1 || open("/dev/null", O_RDWR) < 0)
        return 5;
    if (pthread_setname_np(pthread_self(), "a name") != 0)
        return 6;
    return 0;
}

static int beyond_files(void)
{
    struct sockaddr_in to = {
        .sin_family = AF_INET, .sin_port = htons(9), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    confine_to_run_and_open();
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(fd, (struct sockaddr *)&to, sizeof to) != -1 || errno != EACCES)
        return 1;
    return kill(getppid(), 0) == -1 && errno == EPERM && kill(getpid(), 0) == 0 ? 0 : 2;
}

static void test_files(void **state)
{
    if (!confine_files_possible()) {
        print_message("this kernel has no landlock\n");
        skip();
    }
    in_child(files);
}

static void test_beyond_files(void **state)
{
    if (syscall(SYS_landlock_create_ruleset, NULL, 0, 1) < 6) {
        print_message("this kernel's landlock does not restrict connections and signals\n");
        skip();
    }
    in_child(beyond_files);
}

/* ---- Memory, privileges ---- */

static int secret_memory(void)
{
    struct rlimit core;
    confine_memory();
    return prctl(PR_GET_DUMPABLE) == 0 && getrlimit(RLIMIT_CORE, &core) == 0 && core.rlim_max == 0
               ? 0
               : 1;
}

static void test_memory(void **state)
{
    in_child(secret_memory);
}

static bool has_capabilities(const char *expected)
{
    char line[256], wanted[64];
    bool found = false;
    FILE *f = fopen("/proc/self/status", "re");
    snprintf(wanted, sizeof wanted, "CapEff:\t%s\n", expected);
    while (f && fgets(line, sizeof line, f))
        found |= strcmp(line, wanted) == 0;
    return found;
}

static int no_privileges(void)
{
    confine_privileges_all();
    return has_capabilities("0000000000000000") ? 0 : 1;
}

/* Root of a container may lack any. */
static int few_privileges(void)
{
    static const int given_up[] = {CAP_SYS_ADMIN, CAP_SYS_PTRACE, CAP_NET_RAW};
    bool may_drop = prctl(PR_CAPBSET_READ, CAP_SETPCAP) == 1 && geteuid() == 0;
    confine_privileges_daemon();
    for (int i = 0; i < 3; i++)
        if (may_drop && prctl(PR_CAPBSET_READ, given_up[i]) != 0)
            return 1 + i;
    return 0;
}

static void test_privileges(void **state)
{
    in_child(no_privileges);
    in_child(few_privileges);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_driver),
                                       cmocka_unit_test(test_daemon),
                                       cmocka_unit_test(test_daemon_with_uring),
                                       cmocka_unit_test(test_frontend),
                                       cmocka_unit_test(test_reader),
                                       cmocka_unit_test(test_files),
                                       cmocka_unit_test(test_beyond_files),
                                       cmocka_unit_test(test_memory),
                                       cmocka_unit_test(test_privileges)};
    return cmocka_run_group_tests(tests, make_files, remove_files);
}
