/* Streams through moed-http; see ways.h. It reads only what it must: whether an event has text, and
 * the end. */
#include "ways.h"

#include "base/strbuf.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define TEXT_MARK "\"text\":\""
#define END_MARK  "data: [DONE]"

int connect_to(unsigned port)
{
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_port = htons((uint16_t)port),
                            .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int on = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&a, sizeof a) != 0) {
        fprintf(stderr, "bench-http: cannot connect to port %u: %m\n", port);
        if (fd >= 0)
            close(fd);
        return -1;
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return fd;
}

bool send_request(int fd, const uint32_t *prompt, uint32_t prompt_tokens, uint32_t generate)
{
    struct strbuf body, all;
    strbuf_init(&body);
    strbuf_init(&all);
    strbuf_printf(&body,
                  "{\"stream\":true,\"temperature\":0,\"ignore_eos\":true,\"max_tokens\":%u,"
                  "\"prompt\":[",
                  generate);
    for (uint32_t i = 0; i < prompt_tokens; i++)
        strbuf_printf(&body, "%s%u", i ? "," : "", prompt[i]);
    strbuf_printf(&body, "]}");
    strbuf_printf(&all,
                  "POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\n"
                  "Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
                  body.len, body.data ? body.data : "");
    bool good = !body.failed && !all.failed &&
                send(fd, all.data, all.len, MSG_NOSIGNAL) == (ssize_t)all.len;
    strbuf_fini(&body);
    strbuf_fini(&all);
    return good;
}

struct reply {
    char line[8192]; /* what has come of the last line, NUL-terminated */
    size_t len;
    bool head; /* the status was seen */
};

static bool start(void *arg, const uint32_t *prompt, const struct round_plan *plan,
                  struct stream *s)
{
    s->state = calloc(1, sizeof(struct reply));
    s->fd = connect_to(*(const unsigned *)arg);
    return s->state && s->fd >= 0 &&
           send_request(s->fd, prompt, plan->prompt_tokens, plan->generate);
}

static bool take_line(struct stream *s, struct reply *r, bool *text)
{
    const char *found = strstr(r->line, TEXT_MARK);
    if (!r->head && strncmp(r->line, "HTTP/1.1 200", 12) != 0) {
        fprintf(stderr, "bench-http: moed-http answers: %s\n", r->line);
        return false;
    }
    r->head = true;
    if (strncmp(r->line, "data: {\"error\"", 14) == 0) {
        fprintf(stderr, "bench-http: moed-http: %s\n", r->line);
        return false;
    }
    *text = *text || (found && found[sizeof TEXT_MARK - 1] != '"');
    s->done = s->done || strncmp(r->line, END_MARK, sizeof END_MARK - 1) == 0;
    return true;
}

static bool take_bytes(struct stream *s, const char *data, size_t n, bool *text)
{
    struct reply *r = s->state;
    for (size_t i = 0; i < n; i++) {
        if (data[i] != '\n' && r->len + 1 < sizeof r->line) {
            r->line[r->len++] = data[i];
            continue;
        }
        r->line[r->len] = '\0';
        r->len = 0;
        if (!take_line(s, r, text))
            return false;
    }
    return true;
}

static bool take(struct stream *s, bool *text)
{
    char data[16384];
    ssize_t n = 0;
    while (!s->done && (n = recv(s->fd, data, sizeof data, MSG_DONTWAIT)) > 0)
        if (!take_bytes(s, data, (size_t)n, text))
            return false;
    if (s->done || (n < 0 && errno == EAGAIN))
        return true;
    fprintf(stderr, "bench-http: moed-http closed a stream before its end\n");
    return false;
}

static void end(struct stream *s)
{
    if (s->fd >= 0)
        close(s->fd);
    free(s->state);
}

struct way way_http(const unsigned *port)
{
    return (struct way){
        .name = "http", .arg = (void *)port, .start = start, .read = take, .end = end};
}
