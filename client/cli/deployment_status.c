/* The state of a deployment; see deployment_status.h. */
#include "client/cli/deployment_status.h"

#include "daemon/control.h"
#include "daemon/run_dir.h"
#include "ipc/local_socket.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#define COMMAND_TIMEOUT_S 5

static enum error_code connect_supervisor(const char *run, int *out, struct error *e)
{
    char path[RUN_PATH_BYTES];
    run_dir_file(run, SUPERVISE_SOCKET, path);
    struct sockaddr_un address;
    enum error_code code = local_socket_address(path, &address, e);
    if (code)
        return code;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return error_set(e, ERROR_IO, "cannot create a socket: %m");
    struct timeval timeout = {.tv_sec = COMMAND_TIMEOUT_S};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof timeout);
    if (connect(fd, (struct sockaddr *)&address, sizeof address) != 0) {
        code = error_set(e, errno == EAGAIN ? ERROR_TIMEOUT : ERROR_UNAVAILABLE,
                         "the supervisor does not answer at %s: %s", path, strerror(errno));
        close(fd);
        return code;
    }
    *out = fd;
    return ERROR_OK;
}

/* The last line of a complete answer; NULL: the answer is not complete yet. */
static char *last_line(struct strbuf *answer)
{
    if (answer->failed || answer->len == 0 || answer->data[answer->len - 1] != '\n')
        return NULL;
    char *before = answer->len > 1 ? memrchr(answer->data, '\n', answer->len - 1) : NULL;
    char *line = before ? before + 1 : answer->data;
    return strcmp(line, "ok\n") == 0 || strncmp(line, "error ", 6) == 0 ? line : NULL;
}

static enum error_code receive_answer(int fd, struct strbuf *answer, struct error *e)
{
    for (;;) {
        char *last = last_line(answer);
        if (last && *last == 'e') {
            last[strlen(last) - 1] = '\0';
            return error_set(e, ERROR_USAGE, "%s", last + 6);
        }
        if (last) {
            answer->len = (size_t)(last - answer->data);
            *last = '\0';
            return ERROR_OK;
        }
        char block[2048];
        ssize_t n = recv(fd, block, sizeof block, 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return error_set(e, errno == EAGAIN ? ERROR_TIMEOUT : ERROR_UNAVAILABLE,
                             "the supervisor does not answer: %s",
                             errno == EAGAIN ? "timed out" : strerror(errno));
        if (n == 0 || answer->len > SUPERVISE_ANSWER_BYTES)
            return error_set(e, ERROR_UNAVAILABLE, "the supervisor broke off its answer");
        strbuf_append(answer, block, (size_t)n);
        if (answer->failed)
            return error_set(e, ERROR_MEMORY, "no memory for the supervisor's answer");
    }
}

enum error_code deployment_command(const char *run, const char *command, struct strbuf *answer,
                                   struct error *e)
{
    char line[SUPERVISE_LINE_BYTES];
    int len = snprintf(line, sizeof line, "%s\n", command), fd = -1;
    enum error_code code = connect_supervisor(run, &fd, e);
    if (code)
        return code;
    if (send(fd, line, (size_t)len, MSG_NOSIGNAL) != len)
        code = error_set(e, ERROR_UNAVAILABLE, "the supervisor does not take commands: %m");
    else
        code = receive_answer(fd, answer, e);
    close(fd);
    return code;
}

static uint64_t to_number(const char *value)
{
    return strtoull(value, NULL, 10);
}

static void read_deployment_field(struct deployment_status *s, const char *key, const char *value)
{
    if (strcmp(key, "name") == 0)
        snprintf(s->name, sizeof s->name, "%s", value);
    else if (strcmp(key, "state") == 0)
        snprintf(s->state, sizeof s->state, "%s", value);
    else if (strcmp(key, "model") == 0)
        snprintf(s->model, sizeof s->model, "%s", value);
    else if (strcmp(key, "reason") == 0)
        snprintf(s->reason, sizeof s->reason, "%s", value);
    else if (strcmp(key, "pid") == 0)
        s->pid = (pid_t)to_number(value);
    else if (strcmp(key, "uptime_ms") == 0)
        s->uptime_ms = to_number(value);
}

static void read_process_field(struct deployment_process *p, const char *key, const char *value)
{
    if (strcmp(key, "name") == 0)
        snprintf(p->name, sizeof p->name, "%s", value);
    else if (strcmp(key, "state") == 0)
        snprintf(p->state, sizeof p->state, "%s", value);
    else if (strcmp(key, "status") == 0)
        snprintf(p->status, sizeof p->status, "%s", value);
    else if (strcmp(key, "reason") == 0)
        snprintf(p->reason, sizeof p->reason, "%s", value);
    else if (strcmp(key, "pid") == 0)
        p->pid = (pid_t)to_number(value);
    else if (strcmp(key, "restarts") == 0)
        p->restarts = to_number(value);
    else if (strcmp(key, "uptime_ms") == 0)
        p->uptime_ms = to_number(value);
}

static void read_status_line(struct deployment_status *s, char *line)
{
    const char *kind = strsep(&line, "\t");
    bool is_process = strcmp(kind, "process") == 0;
    if (is_process && s->n_processes == SUPERVISE_PROCESSES)
        return;
    struct deployment_process *p = is_process ? &s->processes[s->n_processes++] : NULL;
    for (char *field; (field = strsep(&line, "\t"));) {
        char *equals = strchr(field, '=');
        if (!equals)
            continue;
        *equals = '\0';
        if (p)
            read_process_field(p, field, equals + 1);
        else if (strcmp(kind, "deployment") == 0)
            read_deployment_field(s, field, equals + 1);
    }
}

enum error_code deployment_status(const char *run, struct deployment_status *out, struct error *e)
{
    struct strbuf answer;
    strbuf_init(&answer);
    enum error_code code = deployment_command(run, "status", &answer, e);
    if (!code) {
        memset(out, 0, sizeof *out);
        char *rest = answer.data;
        for (char *line; (line = strsep(&rest, "\n"));)
            if (*line)
                read_status_line(out, line);
    }
    strbuf_fini(&answer);
    return code;
}

const struct deployment_process *deployment_status_find(const struct deployment_status *s,
                                                        const char *process)
{
    for (unsigned i = 0; i < s->n_processes; i++)
        if (strcmp(s->processes[i].name, process) == 0)
            return &s->processes[i];
    return NULL;
}

enum error_code deployment_health(const char *run, const char *process, Moed__V1__Reply **reply,
                                  struct error *e)
{
    Moed__V1__HealthRequest health = MOED__V1__HEALTH_REQUEST__INIT;
    Moed__V1__Request request = MOED__V1__REQUEST__INIT;
    request.body_case = MOED__V1__REQUEST__BODY_HEALTH;
    request.health = &health;
    return control_call(run, process, &request, MOED__V1__REPLY__BODY_HEALTH,
                        DEPLOYMENT_HEALTH_TIMEOUT_MS, reply, e);
}
