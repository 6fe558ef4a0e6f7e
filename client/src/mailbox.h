/* libmoed: the queue of the messages that the worker sent for one request.
 *
 * The channel's thread appends, one thread of the program takes. A mailbox has no lock of its own:
 * the session's lock guards it, and the caller of every function but mailbox_fini holds that lock.
 *
 *     open --(mailbox_append of the last message)--> ended
 *       '----(mailbox_fail)------------------------> ended, failed
 *
 * After the end only the consumer touches `failed` and `failure`, so it needs no lock for them. */
#ifndef MOED_CLIENT_MAILBOX_H
#define MOED_CLIENT_MAILBOX_H

#include "client/include/moed.h"

#include "session.pb-c.h"

#include <pthread.h>

struct message {
    struct message *next;
    Moed__V1__FromWorker *body; /* owned */
};

struct mailbox {
    struct mailbox *next;  /* in the session's list */
    struct mailbox **link; /* the pointer to it in that list; NULL: it is not there */
    uint64_t id;           /* the request's */
    /* Of the request's message (session_add, resume.c): */
    bool owed, sent;       /* the worker is still to be sent it; its channel has taken it */
    uint32_t workers_lost; /* whose channels had taken it, and which have gone */
    pthread_cond_t changed;
    struct message *first, *last;
    bool ended; /* no message comes any more */
    bool failed;
    struct moed_error failure;
    int event_fd;   /* eventfd; -1: not asked for yet */
    bool signalled; /* event_fd is readable */
};

void mailbox_init(struct mailbox *m);
/* Frees the queued messages. Returns how many of them are events. No other thread may know m. */
uint32_t mailbox_fini(struct mailbox *m);

/* Takes body and wakes the consumer. A message that is no event ends the mailbox. Without memory
 * the mailbox fails instead. */
void mailbox_append(struct mailbox *m, Moed__V1__FromWorker *body);
/* Ends an open mailbox with an error, behind the messages that it holds. */
void mailbox_fail(struct mailbox *m, const struct moed_error *why);

/* Waits for a message or the end, at most timeout_ms (0: does not wait; -1: no limit). Releases
 * the lock while it waits. False: neither came. */
bool mailbox_wait(struct mailbox *m, pthread_mutex_t *lock, int timeout_ms);
/* Takes the first message, which the caller frees with message_free. NULL: the queue is empty. */
struct message *mailbox_take(struct mailbox *m);
/* Frees the queued messages of one kind of event. Returns how many they were. */
uint32_t mailbox_drop(struct mailbox *m, Moed__V1__FromWorker__BodyCase kind);
/* A descriptor that is readable while a message is queued or the mailbox has ended. The mailbox
 * owns it. -1: the process has no descriptor left. */
int mailbox_fd(struct mailbox *m);

void message_free(struct message *m); /* takes NULL */
/* True for what the worker counts against the session's window. */
bool message_is_event(const Moed__V1__FromWorker *body);

#endif
