/* See deployment_fixture.h. */
#include "deployment_fixture.h"

#include "base/clock.h"
#include "daemon/deployment_options.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

/* Paths of the two programs. */
static const char *fixture_supervise, *fixture_fake_daemon;

static const char *const names[] = {"memd", "cpuexec", "worker", "models", "http"};

static void die(const char *what)
{
    perror(what);
    abort();
}

static void fixture_make(struct fixture *f)
{
    memset(f, 0, sizeof *f);
    snprintf(f->base, sizeof f->base, "/tmp/moed-supervise-test.XXXXXX");
    if (!mkdtemp(f->base))
        die("mkdtemp");
    char path[128], name[160];
    snprintf(f->run, sizeof f->run, "%s/run", f->base);
    snprintf(path, sizeof path, "%s/bin", f->base);
    if (mkdir(f->run, 0700) || mkdir(path, 0700))
        die("mkdir");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(name, sizeof name, "%s/moed-%s", path, names[i]);
        if (symlink(fixture_fake_daemon, name))
            die("symlink");
    }
    snprintf(name, sizeof name, "%s/model", f->base);
    int fd = open(name, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0)
        die("model");
    close(fd);
}

static void kill_left(const struct fixture *f)
{
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char file[32];
        snprintf(file, sizeof file, "%s.pid", names[i]);
        int pid = atoi(fixture_file(f, file));
        char path[64], exe[256] = "";
        snprintf(path, sizeof path, "/proc/%d/exe", pid);
        /* Only processes that run our fake program. */
        if (pid > 0 && readlink(path, exe, sizeof exe - 1) > 0 && strstr(exe, "fake_daemon"))
            kill(pid, SIGKILL);
    }
}

static void fixture_remove(struct fixture *f)
{
    if (f->supervisor > 0) {
        kill(f->supervisor, SIGKILL);
        waitpid(f->supervisor, NULL, 0);
    }
    kill_left(f);
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", f->base);
    if (system(command) != 0)
        fprintf(stderr, "cannot remove %s\n", f->base);
}

void fixture_script(const struct fixture *f, const char *process, const char *text)
{
    char path[160];
    snprintf(path, sizeof path, "%s/script.%s", f->run, process);
    FILE *file = fopen(path, "w");
    if (!file || fprintf(file, "%s\n", text) < 0 || fclose(file))
        die(path);
}

void fixture_start(struct fixture *f, const char *const *more, bool close_stdio)
{
    char model[128], bindir[128];
    snprintf(model, sizeof model, "%s/model", f->base);
    snprintf(bindir, sizeof bindir, "%s/bin", f->base);
    const char *arguments[12 + 2 * DEPLOYMENT_OPTIONS_COUNT] = {
        fixture_supervise, "--run", f->run,     "--name", "test",
        "--model",         model,   "--bindir", bindir,   "--cpuexec"};
    size_t n = 10;
    while (more && *more && n < sizeof arguments / sizeof *arguments - 1)
        arguments[n++] = *more++;
    f->supervisor = fork();
    if (f->supervisor < 0)
        die("fork");
    if (f->supervisor == 0) {
        if (close_stdio)
            for (int fd = 0; fd < 3; fd++)
                close(fd);
        execv(fixture_supervise, (char **)arguments);
        _exit(96);
    }
}

int fixture_wait_supervisor(struct fixture *f, int timeout_ms)
{
    uint64_t deadline = clock_ns() + (uint64_t)timeout_ms * 1000000u;
    int status;
    while (waitpid(f->supervisor, &status, WNOHANG) != f->supervisor) {
        if (clock_ns() > deadline)
            return -1000;
        poll(NULL, 0, 2);
    }
    f->supervisor = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

int fixture_connect(const struct fixture *f)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%s/supervise.sock", f->run);
    uint64_t deadline = clock_ns() + LIMIT_MS * 1000000ull;
    for (;;) {
        int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        struct timeval timeout = {.tv_sec = LIMIT_MS / 1000};
        setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
        if (connect(fd, (struct sockaddr *)&address, sizeof address) == 0)
            return fd;
        close(fd);
        if (clock_ns() > deadline)
            return -1;
        poll(NULL, 0, 2);
    }
}

static bool is_complete(const char *text, size_t len)
{
    if (len < 3 || text[len - 1] != '\n')
        return false;
    const char *before = memrchr(text, '\n', len - 1);
    const char *last = before ? before + 1 : text;
    return strncmp(last, "ok\n", 3) == 0 || strncmp(last, "error ", 6) == 0;
}

const char *fixture_command(const struct fixture *f, const char *command)
{
    static char answer[16384];
    int fd = fixture_connect(f);
    if (fd < 0)
        return NULL;
    size_t len = 0;
    bool sent = dprintf(fd, "%s\n", command) > 0;
    while (sent && !is_complete(answer, len)) {
        ssize_t n = recv(fd, answer + len, sizeof answer - 1 - len, 0);
        if (n <= 0)
            break;
        len += (size_t)n;
        answer[len] = '\0';
    }
    close(fd);
    return is_complete(answer, len) ? answer : NULL;
}

void fixture_down(struct fixture *f)
{
    assert_contains(fixture_command(f, "down"), "\nok\n");
    assert_int_equal(fixture_wait_supervisor(f, LIMIT_MS), 0);
}

const char *fixture_value(const struct fixture *f, const char *process, const char *key)
{
    static char value[1024];
    char start[64], field[64];
    bool whole = strcmp(process, "deployment") == 0;
    snprintf(start, sizeof start, whole ? "deployment\t" : "process\tname=%s\t", process);
    snprintf(field, sizeof field, "\t%s=", key);
    const char *answer = fixture_command(f, "status");
    const char *line = answer ? strstr(answer, start) : NULL;
    const char *end = line ? strchr(line, '\n') : NULL;
    const char *found = line ? strstr(line, field) : NULL;
    if (!found || found > end)
        return "(none)";
    found += strlen(field);
    snprintf(value, sizeof value, "%.*s", (int)strcspn(found, "\t\n"), found);
    return value;
}

static void say_never(const struct fixture *f, const char *process, const char *key,
                      const char *value)
{
    fprintf(stderr, "%s %s never became %s:\n%s\n%s\n", process, key, value,
            fixture_command(f, "status"), fixture_file(f, "supervise.log"));
}

bool fixture_until(const struct fixture *f, const char *process, const char *key, const char *value,
                   int timeout_ms)
{
    uint64_t deadline = clock_ns() + (uint64_t)timeout_ms * 1000000u;
    while (strcmp(fixture_value(f, process, key), value) != 0) {
        if (clock_ns() > deadline) {
            say_never(f, process, key, value);
            return false;
        }
        poll(NULL, 0, 5);
    }
    return true;
}

bool fixture_until_least(const struct fixture *f, const char *process, const char *key, int least)
{
    uint64_t deadline = clock_ns() + LIMIT_MS * 1000000ull;
    while (atoi(fixture_value(f, process, key)) < least) {
        if (clock_ns() > deadline) {
            char value[16];
            snprintf(value, sizeof value, "%d", least);
            say_never(f, process, key, value);
            return false;
        }
        poll(NULL, 0, 5);
    }
    return true;
}

pid_t fixture_pid(const struct fixture *f, const char *process)
{
    return atoi(fixture_value(f, process, "pid"));
}

const char *fixture_file(const struct fixture *f, const char *name)
{
    static char text[65536];
    char path[160];
    snprintf(path, sizeof path, "%s/%s", f->run, name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, text, sizeof text - 1) : 0;
    if (fd >= 0)
        close(fd);
    text[n > 0 ? n : 0] = '\0';
    return text;
}

bool fixture_exists(const struct fixture *f, const char *name)
{
    char path[160];
    snprintf(path, sizeof path, "%s/%s", f->run, name);
    return access(path, F_OK) == 0;
}

unsigned fixture_count_events(const struct fixture *f, const char *line)
{
    unsigned count = 0;
    size_t len = strlen(line);
    for (const char *p = fixture_file(f, "events"); *p;) {
        size_t n = strcspn(p, "\n");
        count += n == len && memcmp(p, line, len) == 0;
        p += n + (p[n] == '\n');
    }
    return count;
}

bool fixture_gone(pid_t pid, int timeout_ms)
{
    uint64_t deadline = clock_ns() + (uint64_t)timeout_ms * 1000000u;
    for (;;) {
        char path[64], state = 0;
        snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
        FILE *file = fopen(path, "r");
        if (!file || fscanf(file, "%*d %*s %c", &state) != 1 || state == 'Z') {
            if (file)
                fclose(file);
            return true;
        }
        fclose(file);
        if (clock_ns() > deadline)
            return false;
        poll(NULL, 0, 2);
    }
}

bool fixture_programs(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: %s MOED_SUPERVISE FAKE_DAEMON\n", argv[0]);
        return false;
    }
    fixture_supervise = argv[1];
    fixture_fake_daemon = argv[2];
    return true;
}

int fixture_setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    fixture_make(f);
    *state = f;
    return 0;
}

int fixture_teardown(void **state)
{
    fixture_remove(*state);
    free(*state);
    return 0;
}

void assert_contains(const char *text, const char *part)
{
    if (!text || !strstr(text, part))
        fail_msg("\"%s\" is not in \"%s\"", part, text ? text : "");
}
