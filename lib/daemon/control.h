/* Calling another process's control socket: send a protobuf Request, receive a Reply. */
#ifndef MOED_DAEMON_CONTROL_H
#define MOED_DAEMON_CONTROL_H

#include "base/error.h"

#include "control.pb-c.h"

/* Sets request->abi. The caller owns *reply, which has the body `want`, and frees it with
 * moed__v1__reply__free_unpacked(reply, NULL). An Error reply becomes the code and the text. */
enum error_code control_call(const char *run, const char *process, Moed__V1__Request *request,
                             Moed__V1__Reply__BodyCase want, int timeout_ms,
                             Moed__V1__Reply **reply, struct error *e);
/* The same in exactly this directory: RUN or a place of it (run_dir.h). */
enum error_code control_call_at(const char *dir, const char *process, Moed__V1__Request *request,
                                Moed__V1__Reply__BodyCase want, int timeout_ms,
                                Moed__V1__Reply **reply, struct error *e);
/* A process's health. */
enum error_code control_health(const char *run, const char *process, int timeout_ms,
                               Moed__V1__Reply **reply, struct error *e);
/* A process's metrics. */
enum error_code control_metrics(const char *run, const char *process, int timeout_ms,
                                Moed__V1__Reply **reply, struct error *e);
/* As control_call_at; hands over the connection, for a session (rpc_call_open). */
enum error_code control_call_open(const char *dir, const char *process, Moed__V1__Request *request,
                                  Moed__V1__Reply__BodyCase want, int timeout_ms,
                                  Moed__V1__Reply **reply, int *fd, struct error *e);
/* The same as control_call, from one daemon to another that has `peers` (daemon.h). */
enum error_code control_call_peer(const char *run, const char *process, Moed__V1__Request *request,
                                  Moed__V1__Reply__BodyCase want, int timeout_ms,
                                  Moed__V1__Reply **reply, struct error *e);

#endif
