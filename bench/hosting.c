/* Starting and stopping the measured deployment; see hosting.h.
 *
 * `moed up --foreground` is a child process. It stops its deployment on SIGTERM and when its parent
 * dies, so nothing of a benchmark outlives it.
 */
#include "hosting.h"

#include "daemon/program_find.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define MAX_ARGUMENTS  16
#define LOOKS_A_SECOND 50

struct command {
    char program[PATH_MAX];
    const char *arguments[MAX_ARGUMENTS];
    size_t n;
    char numbers[3][24];
};

static void add_number(struct command *c, int which, const char *flag, uint64_t value)
{
    if (value == 0)
        return;
    snprintf(c->numbers[which], sizeof c->numbers[which], "%" PRIu64, value);
    c->arguments[c->n++] = flag;
    c->arguments[c->n++] = c->numbers[which];
}

static void build_command(const struct hosting_options *o, struct command *c)
{
    c->arguments[c->n++] = c->program;
    c->arguments[c->n++] = "up";
    c->arguments[c->n++] = "--foreground";
    c->arguments[c->n++] = "--speculate"; /* a step is a token */
    c->arguments[c->n++] = "off";
    add_number(c, 0, "--threads", o->threads);
    add_number(c, 1, "--ctx", o->ctx);
    add_number(c, 2, "--parallel", o->parallel);
    c->arguments[c->n++] = o->model;
}

static void become_moed(const struct command *c, pid_t parent, int output)
{
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent || dup2(output, STDOUT_FILENO) < 0)
        _exit(1);
    execv(c->program, (char **)(uintptr_t)c->arguments);
    fprintf(stderr, "moed-bench: cannot run %s: %m\n", c->program);
    _exit(1);
}

/* Waits for the line that `moed up` prints when the deployment answers. If its output ends before,
 * there is no deployment. */
static bool wait_for_line(int input)
{
    char c = 0;
    for (;;) {
        ssize_t n = read(input, &c, 1);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0 || c == '\n')
            return n > 0;
    }
}

static enum error_code make_directory(struct hosting *h, struct error *e)
{
    strcpy(h->run, "/tmp/moed-bench-XXXXXX");
    if (!mkdtemp(h->run)) {
        h->run[0] = '\0';
        return error_set(e, ERROR_IO, "cannot create a directory in /tmp: %m");
    }
    if (setenv("MOED_RUN", h->run, 1))
        return error_set(e, ERROR_MEMORY, "cannot set MOED_RUN: %m");
    return ERROR_OK;
}

enum error_code hosting_start(const struct hosting_options *o, struct hosting *h, struct error *e)
{
    struct command c = {.n = 0};
    int output[2];
    *h = (struct hosting){0};
    build_command(o, &c);
    if (program_find("moed", NULL, c.program, e) || make_directory(h, e))
        return e->code;
    if (pipe2(output, O_CLOEXEC))
        return error_set(e, ERROR_IO, "cannot create a pipe: %m");
    pid_t self = getpid();
    h->moed = fork();
    if (h->moed == 0)
        become_moed(&c, self, output[1]);
    close(output[1]);
    bool answers = h->moed > 0 && wait_for_line(output[0]);
    close(output[0]);
    if (h->moed > 0)
        return answers
                   ? ERROR_OK
                   : error_set(e, ERROR_UNAVAILABLE, "no deployment of %s to measure", o->model);
    h->moed = 0;
    return error_set(e, ERROR_IO, "cannot start a process: %m");
}

/* Only logs are left in it. */
static void remove_directory(const char *path)
{
    DIR *d = opendir(path);
    for (struct dirent *entry; d && (entry = readdir(d));)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            unlinkat(dirfd(d), entry->d_name, 0);
    if (d)
        closedir(d);
    rmdir(path);
}

void hosting_stop(struct hosting *h)
{
    /* Repeated: the signal may reach a thread that ignores it. */
    for (unsigned looks = 0; h->moed > 0; looks++) {
        if (looks % LOOKS_A_SECOND == 0)
            kill(h->moed, SIGTERM);
        pid_t ended = waitpid(h->moed, NULL, WNOHANG);
        if (ended == h->moed || (ended < 0 && errno != EINTR))
            h->moed = 0;
        else
            poll(NULL, 0, 1000 / LOOKS_A_SECOND);
    }
    if (h->run[0])
        remove_directory(h->run);
    h->run[0] = '\0';
}
