/* libmoed: in which session, so at which worker of the deployment, a request runs.
 *
 * The program's session (the front) has a channel to one worker. Where the deployment has several,
 * the router opens further sessions, its links, one for each other worker that worker_choice.h has
 * chosen. A request belongs to the session that it was started in, and ends there.
 *
 * Threads: any; the router's lock is taken before the sessions', and no call that can wait is made
 * under it. */
#ifndef MOED_CLIENT_ROUTER_H
#define MOED_CLIENT_ROUTER_H

#include "client/src/session.h"

struct router;

/* For the front, which is not connected yet. NULL: no memory. */
struct router *router_new(struct moed_session *front);
/* In a child of fork: closes the child's copies of the channels' descriptors, and nothing else. */
void router_abandon(struct router *r);
/* Detaches the links. The front is dead. Takes NULL. */
void router_close(struct router *r);
void router_free(struct router *r); /* after router_close; takes NULL */

/* The session for a request that `session` was asked for: itself, or a link of it. The caller drops
 * its reference (session_unref). In a child of fork: MOED_ERROR_USAGE. */
enum moed_code router_route(struct moed_session *session, const struct choice_prompt *prompt,
                            struct moed_session **out, struct moed_error *error);

#endif
