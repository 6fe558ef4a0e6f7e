/* A stand-in for memd, cpuexec, worker, models and http, to test the supervisor without them. It
 * runs under their names (links). The file RUN/script.NAME controls it, with one word and perhaps a
 * number:
 *
 *   serve (or no file)  ready at once; ends with 0 on SIGTERM, with 1 when memd has gone (not http)
 *   slow MS             the same, ready after MS milliseconds
 *   held                loads until the file has another word, then serves
 *   exit N              prints lines on standard error and ends with N before it is ready
 *   once N              exit N the first time, serve afterwards
 *   hang                never ready
 *   forge               never ready, but a child of it claims so
 *   stubborn            serves and ignores SIGTERM, and memd's end too
 *   late MS             serves, and ends MS milliseconds after SIGTERM
 *   drains              serves, and ends with SIGINT after SIGTERM, as http with requests
 *   silent              serves and does not notify the watchdog
 *   unheard             serves, but its first notification that it is ready is lost
 *
 * Each start, readiness and orderly end is a line of RUN/events; its arguments stand in
 * RUN/arguments.NAME, and what its environment has of CUDA's MPS in RUN/environment.NAME. */
#include "daemon/notify.h"
#include "daemon/run_dir.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *run, *name;
static volatile sig_atomic_t stopped, hurried;

static void on_stop(int signal_number)
{
    (void)signal_number;
    stopped = 1;
}

static void on_hurry(int signal_number)
{
    (void)signal_number;
    hurried = stopped;
}

static void event(const char *what)
{
    char path[RUN_PATH_BYTES], line[64];
    run_dir_file(run, "events", path);
    int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    int len = snprintf(line, sizeof line, "%s %s\n", what, name);
    if (fd < 0 || write(fd, line, (size_t)len) != len)
        exit(99);
    close(fd);
}

static FILE *open_own(const char *prefix, const char *mode)
{
    char file[64], path[RUN_PATH_BYTES];
    snprintf(file, sizeof file, "%s.%s", prefix, name);
    run_dir_file(run, file, path);
    return fopen(path, mode);
}

static void keep_environment(void)
{
    static const char *const names[] = {"CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY"};
    FILE *f = open_own("environment", "w");
    for (int i = 0; f && i < 2; i++)
        if (getenv(names[i]))
            fprintf(f, "%s=%s\n", names[i], getenv(names[i]));
    if (f)
        fclose(f);
}

static void keep_arguments(int argc, char **argv)
{
    keep_environment();
    FILE *f = open_own("arguments", "w");
    for (int i = 1; f && i < argc; i++)
        fprintf(f, "%s\n", argv[i]);
    if (f)
        fclose(f);
}

static _Noreturn void last_words(int status)
{
    fprintf(stderr, "something before\n2026-01-31T12:00:00.000Z error %s last words of %s\n", name,
            name);
    exit(status);
}

/* Serves until SIGTERM, or until memd is gone. */
static _Noreturn void serve(const char *word, int number)
{
    bool stubborn = strcmp(word, "stubborn") == 0, silent = strcmp(word, "silent") == 0;
    bool needs_memd = strcmp(name, "memd") != 0 && strcmp(name, "http") != 0 &&
                      strcmp(name, "models") != 0 && !stubborn;
    bool drains = strcmp(word, "drains") == 0;
    signal(SIGTERM, stubborn ? SIG_IGN : on_stop);
    signal(SIGINT, drains ? on_hurry : SIG_DFL);
    char file[64], path[RUN_PATH_BYTES]; /* stands for the control socket */
    snprintf(file, sizeof file, "%s.ctl", name);
    run_dir_file(run, file, path);
    close(open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    event("ready");
    if (strcmp(word, "unheard") != 0)
        notify_send("READY=1", true);
    for (int turn = 0; !stopped; turn++) {
        if (!silent && turn % 10 == 0)
            notify_send("READY=1\nWATCHDOG=1", false);
        if (needs_memd && !run_dir_holder(run, "memd")) {
            event("lost-memd");
            exit(1);
        }
        poll(NULL, 0, 5);
    }
    if (strcmp(word, "late") == 0)
        poll(NULL, 0, number);
    while (drains && !hurried)
        poll(NULL, 0, 5);
    event("stop");
    exit(0);
}

/* True if the script says `held`, or is being written. */
static bool is_held(void)
{
    char word[32] = "held";
    FILE *script = open_own("script", "r");
    if (script && fscanf(script, "%31s", word) < 1)
        strcpy(word, "held");
    if (script)
        fclose(script);
    return strcmp(word, "held") == 0;
}

static _Noreturn void hang(bool forge)
{
    if (forge && fork() == 0) {
        notify_send("READY=1", true);
        exit(0);
    }
    for (;;)
        pause();
}

int main(int argc, char **argv)
{
    const char *slash = strrchr(argv[0], '/');
    name = strstr(slash ? slash : argv[0], "moed-");
    for (int i = 1; i + 1 < argc; i++)
        if (strcmp(argv[i], "--run") == 0)
            run = argv[i + 1];
    if (!name || !run)
        return 99;
    name += strlen("moed-");
    if (run_dir_lock(run, name, NULL))
        return 98;
    event("start");
    keep_arguments(argc, argv);

    char word[32] = "serve";
    int number = 0;
    FILE *script = open_own("script", "r");
    if (script && fscanf(script, "%31s %d", word, &number) < 1)
        return 97;
    if (script)
        fclose(script);

    if (strcmp(word, "exit") == 0)
        last_words(number);
    if (strcmp(word, "once") == 0) {
        FILE *f = open_own("script", "w");
        if (f && fputs("serve\n", f) >= 0)
            fclose(f);
        last_words(number);
    }
    if (strcmp(word, "hang") == 0 || strcmp(word, "forge") == 0)
        hang(word[0] == 'f');
    if (strcmp(word, "slow") == 0) {
        notify_send("STATUS=loading 50%", false);
        poll(NULL, 0, number);
    }
    if (strcmp(word, "held") == 0) {
        notify_send("STATUS=loading 50%", false);
        while (is_held())
            poll(NULL, 0, 5);
    }
    serve(word, number);
}
