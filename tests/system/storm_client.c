/* Clients that go in the middle of a call, against a running deployment.
 *
 *   storm-client RUN COUNT
 *
 * COUNT clients, one after the other, on the control sockets of memd and the worker. Every second
 * one is a process that asks for the metrics or attaches a session, and is killed within 0 to 2 ms.
 * The others send a part of a request, or bytes that are none, and close. storm.sh counts what the
 * daemons hold afterwards. */
#include "base/error.h"
#include "daemon/control.h"
#include "daemon/run_dir.h"
#include "ipc/rpc.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const char *run;
static unsigned random_state = 12345;

static unsigned random_number(unsigned below)
{
    random_state = random_state * 1664525u + 1013904223u;
    return (random_state >> 8) % below;
}

static void call(const char *process, bool attaches)
{
    Moed__V1__MetricsRequest metrics = MOED__V1__METRICS_REQUEST__INIT;
    Moed__V1__SessionAttachRequest attach = MOED__V1__SESSION_ATTACH_REQUEST__INIT;
    Moed__V1__Request request = MOED__V1__REQUEST__INIT;
    Moed__V1__Reply *reply;
    int fd;
    if (attaches) {
        request.body_case = MOED__V1__REQUEST__BODY_SESSION_ATTACH;
        request.session_attach = &attach;
        control_call_open(run, "worker", &request, MOED__V1__REPLY__BODY_SESSION_ATTACH, 5000,
                          &reply, &fd, NULL);
    } else {
        request.body_case = MOED__V1__REQUEST__BODY_METRICS;
        request.metrics = &metrics;
        control_call(run, process, &request, MOED__V1__REPLY__BODY_METRICS, 5000, &reply, NULL);
    }
    pause(); /* until it is killed */
}

static void killed_client(const char *process, bool attaches)
{
    pid_t pid = fork();
    if (pid == 0) {
        call(process, attaches);
        _exit(0);
    }
    if (pid < 0) {
        perror("storm-client: fork");
        exit(1);
    }
    nanosleep(&(struct timespec){.tv_nsec = (long)random_number(2000) * 1000}, NULL);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

/* A health request in its frame; an nng greeting; a length above the limit. */
static const uint8_t whole[] = {4, 0, 0, 0, 0x08, CONTROL_ABI, 0x52, 0x00};
static const uint8_t nng[] = {0, 'S', 'P', 0, 0, 0x30, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2};
static const uint8_t long_one[] = {0xff, 0xff, 0xff, 0xff, 1, 2, 3};

static void half_spoken_client(const char *process)
{
    static const struct {
        const uint8_t *bytes;
        size_t len;
    } kinds[] = {{whole, sizeof whole}, {nng, sizeof nng}, {long_one, sizeof long_one}};
    char file[32], path[RUN_PATH_BYTES];
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(file, sizeof file, "%s.ctl", process);
    run_dir_file(run, file, path);
    memcpy(address.sun_path, path, strlen(path) + 1);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address) != 0) {
        perror("storm-client: connect");
        exit(1);
    }
    unsigned kind = random_number(3);
    (void)!send(fd, kinds[kind].bytes, random_number((unsigned)kinds[kind].len + 1), MSG_NOSIGNAL);
    close(fd);
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    run = argv[1];
    unsigned count = (unsigned)strtoul(argv[2], NULL, 10);
    for (unsigned i = 0; i < count; i++) {
        const char *process = i % 4 < 2 ? "worker" : "memd";
        if (i % 2)
            half_spoken_client(process);
        else
            killed_client(process, i % 8 == 0);
    }
    return 0;
}
