/* The supervisor's sockets; see sockets.h.
 *
 * A client has a fixed buffer for each direction. The supervisor reads nothing from a client that
 * has not read its answer. A line that does not fit ends the connection. Where all slots are taken,
 * a new client replaces the one that was idle for longest. */
#include "deploy/sockets.h"

#include "base/clock.h"
#include "ipc/local_socket.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

static enum error_code bind_socket(const char *path, int type, int *out, struct error *e)
{
    struct sockaddr_un address;
    enum error_code code = local_socket_address(path, &address, e);
    if (code)
        return code;
    int fd = socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return error_set(e, ERROR_IO, "cannot create a socket: %m");
    unlink(path); /* no process uses it: this one holds the deployment's lock */
    /* The umask is 077: mode 0700 from the start. */
    if (bind(fd, (struct sockaddr *)&address, sizeof address) != 0) {
        error_set(e, ERROR_IO, "cannot bind %s: %m", path);
        close(fd);
        return ERROR_IO;
    }
    *out = fd;
    return ERROR_OK;
}

enum error_code notify_socket_open(const char *path, int *fd, struct error *e)
{
    enum error_code code = bind_socket(path, SOCK_DGRAM, fd, e);
    if (code)
        return code;
    int on = 1;
    if (setsockopt(*fd, SOL_SOCKET, SO_PASSCRED, &on, sizeof on) != 0) {
        close(*fd);
        return error_set(e, ERROR_IO, "cannot ask for senders' credentials: %m");
    }
    return ERROR_OK;
}

bool notify_socket_receive(int fd, char *text, size_t bytes, pid_t *pid)
{
    union {
        struct cmsghdr header;
        char space[CMSG_SPACE(sizeof(struct ucred))];
    } control;
    struct iovec data = {text, bytes - 1};
    struct msghdr message = {.msg_iov = &data,
                             .msg_iovlen = 1,
                             .msg_control = &control,
                             .msg_controllen = sizeof control};
    /* Descriptors that a sender attaches do not fit into the control buffer: the kernel drops them.
     */
    ssize_t n = recvmsg(fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (n < 0)
        return false;
    text[n] = '\0';
    *pid = 0;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(&message); c; c = CMSG_NXTHDR(&message, c))
        if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_CREDENTIALS &&
            c->cmsg_len == CMSG_LEN(sizeof(struct ucred))) {
            struct ucred sender;
            memcpy(&sender, CMSG_DATA(c), sizeof sender);
            *pid = sender.pid;
        }
    return true;
}

enum error_code clients_open(struct clients *c, const char *path, struct error *e)
{
    for (int i = 0; i < CLIENTS_MAX; i++)
        c->slots[i].fd = -1;
    c->listen_fd = -1;
    return clients_listen(c, path, e);
}

enum error_code clients_listen(struct clients *c, const char *path, struct error *e)
{
    if (c->listen_fd >= 0)
        close(c->listen_fd);
    c->listen_fd = -1;
    enum error_code code = bind_socket(path, SOCK_STREAM, &c->listen_fd, e);
    if (code)
        return code;
    if (chmod(path, 0600) != 0 || listen(c->listen_fd, CLIENTS_MAX) != 0)
        return error_set(e, ERROR_IO, "cannot listen at %s: %m", path);
    return ERROR_OK;
}

static void drop(struct client *c)
{
    close(c->fd);
    c->fd = -1;
}

static void accept_one(struct clients *c)
{
    int fd = accept4(c->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0)
        return;
    struct client *place = &c->slots[0];
    for (int i = 0; i < CLIENTS_MAX && place->fd >= 0; i++)
        if (c->slots[i].fd < 0 || c->slots[i].active_ns < place->active_ns)
            place = &c->slots[i];
    if (place->fd >= 0)
        drop(place);
    memset(place, 0, sizeof *place);
    place->fd = fd;
    place->active_ns = clock_ns();
}

static void send_pending(struct client *c)
{
    while (c->out_sent < c->out_len) {
        ssize_t n = send(c->fd, c->out + c->out_sent, c->out_len - c->out_sent, MSG_NOSIGNAL);
        if (n < 0 && errno == EAGAIN)
            return;
        if (n <= 0) {
            drop(c);
            return;
        }
        c->out_sent += (size_t)n;
        c->active_ns = clock_ns();
    }
    c->out_len = c->out_sent = 0;
    if (c->closing)
        drop(c);
}

static void put_answer(struct client *c, const char *text, size_t len)
{
    if (len > sizeof c->out) { /* three processes never need so much */
        text = "error the answer is too long\n";
        len = strlen(text);
    }
    memcpy(c->out, text, len);
    c->out_len = len;
    c->out_sent = 0;
    send_pending(c);
}

/* Answers the complete lines that came, one after the other, while the client takes the answers. */
static void take_lines(struct client *c, command_handler *handler, void *arg)
{
    while (c->fd >= 0 && c->out_len == 0) {
        char *newline = memchr(c->in, '\n', c->in_len);
        if (!newline) {
            if (c->in_len == sizeof c->in) {
                static const char text[] = "error the line is too long\n";
                c->closing = true;
                put_answer(c, text, sizeof text - 1);
            }
            return;
        }
        *newline = '\0';
        struct strbuf answer;
        strbuf_init(&answer);
        handler(arg, c->in, &answer);
        size_t taken = (size_t)(newline + 1 - c->in);
        c->in_len -= taken;
        memmove(c->in, newline + 1, c->in_len);
        if (answer.failed)
            drop(c);
        else
            put_answer(c, answer.data, answer.len);
        strbuf_fini(&answer);
    }
}

static void read_some(struct client *c)
{
    ssize_t n = recv(c->fd, c->in + c->in_len, sizeof c->in - c->in_len, 0);
    if (n < 0 && errno == EAGAIN)
        return;
    if (n <= 0) {
        drop(c);
        return;
    }
    c->in_len += (size_t)n;
    c->active_ns = clock_ns();
}

void clients_poll_set(const struct clients *c, struct pollfd *fds)
{
    fds[0] = (struct pollfd){c->listen_fd, POLLIN, 0};
    for (int i = 0; i < CLIENTS_MAX; i++) {
        const struct client *client = &c->slots[i];
        fds[1 + i] = (struct pollfd){client->fd, client->out_len ? POLLOUT : POLLIN, 0};
    }
}

void clients_serve(struct clients *c, const struct pollfd *fds, command_handler *handler, void *arg)
{
    for (int i = 0; i < CLIENTS_MAX; i++) {
        struct client *client = &c->slots[i];
        if (client->fd < 0 || fds[1 + i].fd != client->fd || !fds[1 + i].revents)
            continue;
        if (client->out_len)
            send_pending(client);
        else
            read_some(client);
        take_lines(client, handler, arg);
    }
    if (fds[0].revents)
        accept_one(c);
}

void clients_close(struct clients *c)
{
    for (int i = 0; i < CLIENTS_MAX; i++)
        if (c->slots[i].fd >= 0)
            drop(&c->slots[i]);
    if (c->listen_fd >= 0)
        close(c->listen_fd);
    c->listen_fd = -1;
}
