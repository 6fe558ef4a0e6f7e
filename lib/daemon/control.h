/* Calling another process's control socket: a protobuf Request out, a Reply in. */
#ifndef MOED_DAEMON_CONTROL_H
#define MOED_DAEMON_CONTROL_H

#include "base/error.h"

#include "control.pb-c.h"

/* *reply is owned by the caller (moed__v1__reply__free_unpacked(reply, NULL)) and has the body
 * `want`; an Error reply becomes the returned code and text. request->abi is set here. */
enum error_code control_call(const char *run, const char *process, Moed__V1__Request *request,
                             Moed__V1__Reply__BodyCase want, int timeout_ms,
                             Moed__V1__Reply **reply, struct error *e);

#endif
