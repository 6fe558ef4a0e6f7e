/* Mailboxes; see mailbox.h. */
#include "client/src/mailbox.h"

#include "client/src/error.h"

#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

bool message_is_event(const Moed__V1__FromWorker *body)
{
    return body->body_case == MOED__V1__FROM_WORKER__BODY_TOKENS ||
           body->body_case == MOED__V1__FROM_WORKER__BODY_LOGITS ||
           body->body_case == MOED__V1__FROM_WORKER__BODY_LOGPROBS ||
           body->body_case == MOED__V1__FROM_WORKER__BODY_ROUTING ||
           body->body_case == MOED__V1__FROM_WORKER__BODY_PROGRESS;
}

void message_free(struct message *m)
{
    if (!m)
        return;
    moed__v1__from_worker__free_unpacked(m->body, NULL);
    free(m);
}

void mailbox_init(struct mailbox *m)
{
    memset(m, 0, sizeof *m);
    m->event_fd = -1;
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&m->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

uint32_t mailbox_fini(struct mailbox *m)
{
    uint32_t events = 0;
    for (struct message *each = m->first, *next; each; each = next) {
        next = each->next;
        events += message_is_event(each->body);
        message_free(each);
    }
    if (m->event_fd >= 0)
        close(m->event_fd);
    pthread_cond_destroy(&m->changed);
    return events;
}

static void wake(struct mailbox *m)
{
    if (m->event_fd >= 0 && !m->signalled)
        m->signalled = eventfd_write(m->event_fd, 1) == 0;
    pthread_cond_broadcast(&m->changed);
}

void mailbox_fail(struct mailbox *m, const struct moed_error *why)
{
    if (m->ended)
        return;
    m->failed = true;
    m->failure = *why;
    m->ended = true;
    wake(m);
}

void mailbox_append(struct mailbox *m, Moed__V1__FromWorker *body)
{
    struct message *new = malloc(sizeof *new);
    if (!new) {
        struct moed_error why;
        error_report(&why, MOED_ERROR_MEMORY, false, "no memory for the worker's answer");
        mailbox_fail(m, &why);
        moed__v1__from_worker__free_unpacked(body, NULL);
        return;
    }
    *new = (struct message){.body = body};
    if (m->last)
        m->last->next = new;
    else
        m->first = new;
    m->last = new;
    m->ended = !message_is_event(body);
    wake(m);
}

static struct timespec deadline_after(int timeout_ms)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    t.tv_sec += timeout_ms / 1000;
    t.tv_nsec += (long)(timeout_ms % 1000) * 1000000;
    if (t.tv_nsec >= 1000000000) {
        t.tv_nsec -= 1000000000;
        t.tv_sec++;
    }
    return t;
}

bool mailbox_wait(struct mailbox *m, pthread_mutex_t *lock, int timeout_ms)
{
    struct timespec deadline = deadline_after(timeout_ms > 0 ? timeout_ms : 0);
    int late = timeout_ms == 0;
    while (!m->first && !m->ended && !late)
        late = timeout_ms < 0 ? pthread_cond_wait(&m->changed, lock)
                              : pthread_cond_timedwait(&m->changed, lock, &deadline);
    return m->first || m->ended;
}

/* Messages were taken out: there may be none to wake for. */
static void rest(struct mailbox *m)
{
    if (!m->first && !m->ended && m->signalled) {
        eventfd_t bells;
        m->signalled = eventfd_read(m->event_fd, &bells) != 0;
    }
}

struct message *mailbox_take(struct mailbox *m)
{
    struct message *taken = m->first;
    if (taken)
        m->first = taken->next;
    if (!m->first)
        m->last = NULL;
    rest(m);
    return taken;
}

uint32_t mailbox_drop(struct mailbox *m, Moed__V1__FromWorker__BodyCase kind)
{
    uint32_t dropped = 0;
    struct message **link = &m->first;
    m->last = NULL;
    while (*link) {
        struct message *each = *link;
        if (each->body->body_case == kind) {
            *link = each->next;
            message_free(each);
            dropped++;
        } else {
            m->last = each;
            link = &each->next;
        }
    }
    rest(m);
    return dropped;
}

int mailbox_fd(struct mailbox *m)
{
    if (m->event_fd < 0) {
        m->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        if (m->event_fd >= 0 && (m->first || m->ended))
            wake(m);
    }
    return m->event_fd;
}
