/* Constants of both ends of peer_rpc.h. Internal to lib/ipc. */
#ifndef MOED_IPC_PEER_RPC_WIRE_H
#define MOED_IPC_PEER_RPC_WIRE_H

#include "base/error.h"

#include <string.h>

#define PEER_RPC_SLACK 1024 /* nng's own headers count against its receive limit */

/* The socket's path, for messages. */
static inline const char *peer_rpc_path_of(const char *url)
{
    return strncmp(url, "ipc://", 6) == 0 ? url + 6 : url;
}

/* Call it before nng's first socket: where nng 1.5.2 cannot start its threads, it crashes.
 * ERROR_MEMORY: there is no address space for them, or they are not
 * allowed. */
enum error_code peer_rpc_check_start(struct error *e);

#endif
