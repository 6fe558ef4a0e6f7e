#include "tests/unit/stand_in_worker.h"

#include "ipc/rpc.h"
#include "tests/unit/stand_in_requests.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- The control socket ---- */

static void open_peer(void *arg, int fd)
{
    struct peer *p = arg;
    pthread_mutex_lock(&p->worker->lock);
    p->fd = fd;
    if (fd >= 0 && channel_open(fd, NULL, stand_in_receive, p, &p->channel, NULL))
        abort();
    pthread_mutex_unlock(&p->worker->lock);
}

/* As a worker without descriptors for a channel does. */
static void close_peer(void *arg, int fd)
{
    const struct stand_in *w = arg;
    if (fd < 0)
        return;
    if (w && write(fd, "\xff\xff\xff\xff", 4) != 4)
        abort();
    close(fd);
}

static void answer_attach(struct stand_in *w, const Moed__V1__SessionAttachRequest *request,
                          Moed__V1__Reply *reply, struct rpc_reply *out)
{
    static Moed__V1__SessionAttachReply attach;
    static Moed__V1__Error error;
    if (w->refusal) {
        w->refused++;
        moed__v1__error__init(&error);
        error.code = ERROR_UNAVAILABLE;
        error.retry = true;
        error.message = (char *)w->refusal;
        reply->body_case = MOED__V1__REPLY__BODY_ERROR;
        reply->error = &error;
        return;
    }
    if (w->closes) {
        w->closes = false;
        out->adopt = close_peer;
        out->adopt_arg = w->babbles ? w : NULL;
    } else {
        struct peer *p = &w->peers[w->n_peers++];
        *p = (struct peer){.worker = w};
        out->adopt = open_peer;
        out->adopt_arg = p;
    }
    snprintf(w->client, sizeof w->client, "%s", request->client);
    w->pid = request->pid;
    moed__v1__session_attach_reply__init(&attach);
    attach.window = w->window;
    attach.model = w->model;
    reply->body_case = MOED__V1__REPLY__BODY_SESSION_ATTACH;
    reply->session_attach = &attach;
}

static void control(void *arg, const uint8_t *data, size_t len, struct rpc_reply *out)
{
    struct stand_in *w = arg;
    Moed__V1__MetricsReply metrics = MOED__V1__METRICS_REPLY__INIT;
    metrics.prometheus_text = (char *)"moed_stand_in 1\n";
    Moed__V1__Request *request = moed__v1__request__unpack(NULL, len, data);
    Moed__V1__Reply reply = MOED__V1__REPLY__INIT;
    reply.abi = CONTROL_ABI;
    if (!request)
        abort();
    pthread_mutex_lock(&w->lock);
    if (request->body_case == MOED__V1__REQUEST__BODY_SESSION_ATTACH) {
        answer_attach(w, request->session_attach, &reply, out);
    } else {
        reply.body_case = MOED__V1__REPLY__BODY_METRICS;
        reply.metrics = &metrics;
    }
    pthread_mutex_unlock(&w->lock);
    moed__v1__request__free_unpacked(request, NULL);
    out->len = moed__v1__reply__get_packed_size(&reply);
    out->data = malloc(out->len);
    moed__v1__reply__pack(&reply, out->data);
}

/* ---- For the tests ---- */

void stand_in_start(struct stand_in *w, const char *run, uint32_t window)
{
    char url[RUN_URL_BYTES];
    *w = (struct stand_in){.window = window};
    snprintf(w->run, sizeof w->run, "%s", run);
    pthread_mutex_init(&w->lock, NULL);
    run_dir_url(run, "worker.ctl", url);
    struct error e;
    if (rpc_serve(url, control, w, &w->server, &e)) {
        fprintf(stderr, "%s\n", e.text);
        abort();
    }
}

unsigned stand_in_peers(struct stand_in *w)
{
    pthread_mutex_lock(&w->lock);
    unsigned n = w->n_peers;
    pthread_mutex_unlock(&w->lock);
    return n;
}

static struct channel *take_channel(struct peer *p)
{
    struct channel *channel = p->channel;
    p->channel = NULL;
    p->hung_up |= channel != NULL;
    return channel;
}

void stand_in_hang_up(struct stand_in *w, unsigned session)
{
    struct peer *p = &w->peers[session];
    for (bool over = false; !over;) {
        pthread_mutex_lock(&w->lock);
        /* one that gave up before it was answered has attached again, if it is there */
        over = p->channel || p->hung_up || w->n_peers > session + 1;
        struct channel *channel = take_channel(p);
        pthread_mutex_unlock(&w->lock);
        channel_close(channel, 0);
        if (!over)
            pause_ms(1);
    }
}

void stand_in_hang_up_from(struct stand_in *w, unsigned first)
{
    for (bool over = false; !over;) {
        for (unsigned i = first; i < stand_in_peers(w); i++) {
            pthread_mutex_lock(&w->lock);
            struct channel *channel = take_channel(&w->peers[i]);
            pthread_mutex_unlock(&w->lock);
            channel_close(channel, 0);
            over |= channel != NULL;
        }
        if (!over)
            pause_ms(1);
    }
}

void stand_in_cut(struct stand_in *w, unsigned session)
{
    pthread_mutex_lock(&w->lock);
    shutdown(w->peers[session].fd, SHUT_RDWR);
    pthread_mutex_unlock(&w->lock);
}

void stand_in_refuse(struct stand_in *w, bool refuses)
{
    pthread_mutex_lock(&w->lock);
    w->refusal = refuses ? "starting" : NULL;
    pthread_mutex_unlock(&w->lock);
}

unsigned stand_in_refused(struct stand_in *w)
{
    pthread_mutex_lock(&w->lock);
    unsigned n = w->refused;
    pthread_mutex_unlock(&w->lock);
    return n;
}

void stand_in_stop(struct stand_in *w)
{
    rpc_server_stop(w->server);
    for (unsigned i = 0; i < w->n_peers; i++) {
        pthread_mutex_lock(&w->lock);
        struct channel *channel = take_channel(&w->peers[i]);
        pthread_mutex_unlock(&w->lock);
        channel_close(channel, 0);
        if (w->peers[i].last)
            moed__v1__generate__free_unpacked(w->peers[i].last, NULL);
    }
    pthread_mutex_destroy(&w->lock);
}

bool stand_in_has(struct stand_in *w, unsigned session, uint64_t id)
{
    bool has = false;
    pthread_mutex_lock(&w->lock);
    for (int i = 0; i < STAND_IN_JOBS; i++)
        has |= w->peers[session].jobs[i].id == id;
    pthread_mutex_unlock(&w->lock);
    return has;
}

struct peer stand_in_look(struct stand_in *w, unsigned session)
{
    pthread_mutex_lock(&w->lock);
    struct peer copy = w->peers[session];
    pthread_mutex_unlock(&w->lock);
    return copy;
}
