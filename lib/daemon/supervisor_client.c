/* The client side of the supervisor's socket; see supervisor_client.h. */
#include "daemon/supervisor_client.h"

#include "daemon/run_dir.h"
#include "daemon/supervisor_protocol.h"
#include "ipc/local_socket.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

static enum error_code connect_supervisor(const char *run, int timeout_ms, int *out,
                                          struct error *e)
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
    struct timeval timeout = {.tv_sec = timeout_ms / 1000, .tv_usec = timeout_ms % 1000 * 1000};
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

enum error_code supervisor_command(const char *run, const char *command, int timeout_ms,
                                   struct strbuf *answer, struct error *e)
{
    char line[SUPERVISE_LINE_BYTES];
    int len = snprintf(line, sizeof line, "%s\n", command), fd = -1;
    if (len >= (int)sizeof line)
        return error_set(e, ERROR_USAGE, "the command for the supervisor is too long");
    enum error_code code = connect_supervisor(run, timeout_ms, &fd, e);
    if (code)
        return code;
    if (send(fd, line, (size_t)len, MSG_NOSIGNAL) != len)
        code = error_set(e, ERROR_UNAVAILABLE, "the supervisor does not take commands: %m");
    else
        code = receive_answer(fd, answer, e);
    close(fd);
    return code;
}

/* The value of "\tKEY=" in a line, to the next TAB or newline. */
static void copy_field(const char *line, const char *key, char *out, size_t bytes)
{
    const char *at = strstr(line, key);
    at = at ? at + strlen(key) : "";
    snprintf(out, bytes, "%.*s", (int)strcspn(at, "\t\n"), at);
}

static enum supervisor_state state_of(const char *name, const char *reason)
{
    static const struct {
        const char *name;
        enum supervisor_state state;
    } states[] = {{"starting", SUPERVISOR_RESTARTS},
                  {"ready", SUPERVISOR_RESTARTS},
                  {"degraded", SUPERVISOR_RESTARTS},
                  {"failed", SUPERVISOR_GAVE_UP},
                  {"stopping", SUPERVISOR_STOPPING}};
    if (strcmp(name, "starting") == 0 && reason[0])
        return SUPERVISOR_STARTS_FAIL;
    for (size_t i = 0; i < sizeof states / sizeof *states; i++)
        if (strcmp(name, states[i].name) == 0)
            return states[i].state;
    return SUPERVISOR_NONE;
}

/* Asks for the status: the deployment's line of it, or an empty one. */
static void get_line(const char *run, int timeout_ms, struct strbuf *line)
{
    struct error e;
    strbuf_init(line);
    bool good = supervisor_command(run, "status", timeout_ms, line, &e) == ERROR_OK &&
                strncmp(line->data, "deployment\t", 11) == 0;
    char *end = good ? strchr(line->data, '\n') : line->data;
    if (end) /* the lines of the processes have states of their own */
        *end = '\0';
}

enum supervisor_state supervisor_state_get(const char *run, int timeout_ms, char *reason,
                                           size_t reason_bytes)
{
    struct strbuf line;
    char state[32];
    get_line(run, timeout_ms, &line);
    copy_field(line.data ? line.data : "", "\tstate=", state, sizeof state);
    copy_field(line.data ? line.data : "", "\treason=", reason, reason_bytes);
    strbuf_fini(&line);
    return state_of(state, reason);
}

enum supervisor_state supervisor_model_get(const char *run, int timeout_ms, char *model,
                                           size_t model_bytes)
{
    struct strbuf line;
    char state[32], reason[8];
    get_line(run, timeout_ms, &line);
    copy_field(line.data ? line.data : "", "\tstate=", state, sizeof state);
    copy_field(line.data ? line.data : "", "\treason=", reason, sizeof reason);
    copy_field(line.data ? line.data : "", "\tmodel=", model, model_bytes);
    strbuf_fini(&line);
    return state_of(state, reason);
}
