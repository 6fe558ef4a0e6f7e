/* MPS; see mps.h.
 *
 * RUN/mps exists from before the daemon's start until after its end. So a RUN/mps that exists at
 * the start belongs to a daemon that is left over. `echo quit | nvidia-cuda-mps-control` stops the
 * daemon, as in NVIDIA's manual of MPS. */
#include "deploy/mps.h"

#include "base/clock.h"
#include "base/log.h"
#include "daemon/run_dir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define CONTROL          "nvidia-cuda-mps-control"
#define CONTROL_NS       10000000000ull /* a working daemon answers at once */
#define EXIT_NOT_STARTED 127

static _Noreturn void become_control(int input, bool daemon)
{
    sigset_t none;
    sigemptyset(&none);
    signal(SIGPIPE, SIG_DFL);
    sigprocmask(SIG_SETMASK, &none, NULL);
    setpgid(0, 0);
    /* the daemon numbers devices from 0: a client's index into this list would lead elsewhere */
    unsetenv("CUDA_VISIBLE_DEVICES");
    dup2(input, STDIN_FILENO); /* its output goes to the supervisor's log */
    execlp(CONTROL, CONTROL, daemon ? "-d" : (char *)NULL, (char *)NULL);
    _exit(EXIT_NOT_STARTED);
}

/* Returns the exit status; -1: it did not end in time and was killed. */
static int await_end(pid_t pid)
{
    uint64_t started = clock_ns();
    int status;
    while (waitpid(pid, &status, WNOHANG) == 0) {
        if (clock_ns() - started > CONTROL_NS) {
            kill(pid, SIGKILL);
            waitpid(pid, &status, 0);
            return -1;
        }
        poll(NULL, 0, 5);
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* Runs the control program with `input` on its standard input; NULL: as a daemon. Returns its exit
 * status; -1: it hangs, or cannot be run. */
static int run_control(const char *input)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0)
        return -1;
    pid_t pid = fork();
    if (pid == 0)
        become_control(ends[0], !input);
    close(ends[0]);
    if (input && write(ends[1], input, strlen(input)) < 0)
        errno = 0; /* the program has ended already; its exit status tells why */
    close(ends[1]);
    return pid < 0 ? -1 : await_end(pid);
}

/* Removes the folder of pipes with the files that the daemon made in it. */
static void remove_pipes(const char *path)
{
    DIR *dir = opendir(path);
    if (!dir)
        return;
    for (struct dirent *entry; (entry = readdir(dir));)
        unlinkat(dirfd(dir), entry->d_name, 0); /* fails for . and .. */
    closedir(dir);
    rmdir(path);
}

static void paths(const char *run, char pipes[RUN_PATH_BYTES], char logs[RUN_PATH_BYTES])
{
    run_dir_file(run, "mps", pipes);
    run_dir_file(run, "mps-log", logs);
}

static void set_environment(const char *pipes, const char *logs)
{
    setenv("CUDA_MPS_PIPE_DIRECTORY", pipes, 1);
    setenv("CUDA_MPS_LOG_DIRECTORY", logs, 1);
}

static void clear_environment(void)
{
    unsetenv("CUDA_MPS_PIPE_DIRECTORY");
    unsetenv("CUDA_MPS_LOG_DIRECTORY");
}

void mps_stop(const char *run)
{
    char pipes[RUN_PATH_BYTES], logs[RUN_PATH_BYTES];
    struct stat s;
    paths(run, pipes, logs);
    if (stat(pipes, &s) != 0)
        return;
    set_environment(pipes, logs);
    int status = run_control("quit\n");
    if (status != 0)
        log_warn("cannot stop MPS: %s has exit status %d; its logs are in %s", CONTROL, status,
                 logs);
    remove_pipes(pipes);
    clear_environment();
}

bool mps_start(const char *run, bool wanted)
{
    char pipes[RUN_PATH_BYTES], logs[RUN_PATH_BYTES];
    struct stat s;
    paths(run, pipes, logs);
    if (stat(pipes, &s) == 0) {
        log_warn("stopping the MPS daemon of an earlier supervisor");
        mps_stop(run);
    }
    if (!wanted)
        return true;
    bool made = mkdir(pipes, 0700) == 0 && (mkdir(logs, 0700) == 0 || errno == EEXIST);
    if (!made)
        log_warn("no MPS: cannot make %s: %m", pipes);
    set_environment(pipes, logs);
    int status = made ? run_control(NULL) : -1;
    if (made && status == 0) {
        log_info("MPS started, in %s", pipes);
        return true;
    }
    if (status == EXIT_NOT_STARTED)
        log_warn("no MPS: " CONTROL " is not installed");
    else if (made)
        log_warn("no MPS: " CONTROL " -d does not start (exit status %d): see %s", status, logs);
    remove_pipes(pipes);
    clear_environment();
    return false;
}
