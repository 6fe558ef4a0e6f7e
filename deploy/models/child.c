/* Children; see child.h. */
#include "deploy/models/child.h"

#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define POLL_MS 10

extern char **environ;

/* In a process group of its own, so that a Ctrl-C at the terminal does not reach it, and with all
 * signals as a shell would start it: this process blocks some. */
static int spawn(pid_t *pid, char *const arguments[], int out)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attributes);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, out, STDERR_FILENO);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK |
                                              POSIX_SPAWN_SETSIGDEF);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &all);
    int failed = posix_spawn(pid, arguments[0], &actions, &attributes, arguments, environ);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
    return failed;
}

enum error_code child_start(struct child *c, char *const arguments[], struct error *e)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0)
        return error_set(e, ERROR_IO, "cannot make a pipe: %m");
    *c = (struct child){.out = ends[0]};
    int failed = spawn(&c->pid, arguments, ends[1]);
    close(ends[1]);
    fcntl(c->out, F_SETFL, O_NONBLOCK);
    if (!failed)
        return ERROR_OK;
    close(c->out);
    c->pid = 0;
    return error_set(e, ERROR_IO, "cannot run %s: %s", arguments[0], strerror(failed));
}

static void take_byte(struct child *c, char byte)
{
    if (byte != '\n' && byte != '\r') {
        if (c->len < sizeof c->line - 1)
            c->line[c->len++] = byte;
        return;
    }
    c->line[c->len] = '\0';
    if (c->len)
        memcpy(c->last, c->line, c->len + 1);
    c->len = 0;
}

/* True: there may be more later. */
static bool read_output(struct child *c)
{
    char block[1024];
    ssize_t n;
    while ((n = read(c->out, block, sizeof block)) > 0)
        for (ssize_t i = 0; i < n; i++)
            take_byte(c, block[i]);
    return n < 0 && (errno == EAGAIN || errno == EINTR);
}

static int end(struct child *c, int status)
{
    read_output(c);
    take_byte(c, '\n');
    close(c->out);
    c->pid = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

bool child_poll(struct child *c, int *exit_code)
{
    int status;
    if (!c->pid)
        return false;
    read_output(c); /* a full pipe must not stop it */
    if (waitpid(c->pid, &status, WNOHANG) != c->pid)
        return false;
    *exit_code = end(c, status);
    return true;
}

void child_interrupt(const struct child *c)
{
    if (c->pid)
        kill(c->pid, SIGINT);
}

int child_wait(struct child *c)
{
    int status = 0;
    if (!c->pid)
        return 0;
    struct pollfd p = {.fd = c->out, .events = POLLIN};
    while (read_output(c)) /* until it closes the pipe, which is its end */
        poll(&p, 1, -1);
    while (waitpid(c->pid, &status, 0) < 0 && errno == EINTR)
        ;
    return end(c, status);
}

void child_end(struct child *c, unsigned timeout_ms)
{
    uint64_t until = clock_ns() + timeout_ms * 1000000ull;
    int exit_code;
    while (c->pid && !child_poll(c, &exit_code)) {
        if (clock_ns() >= until)
            kill(c->pid, SIGKILL);
        poll(NULL, 0, POLL_MS);
    }
}
