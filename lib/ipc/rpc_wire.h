/* What both ends of lib/ipc/rpc share. Internal to lib/ipc. */
#ifndef MOED_IPC_RPC_WIRE_H
#define MOED_IPC_RPC_WIRE_H

#include <string.h>

#define RPC_WIRE_SLACK 1024 /* nng's own headers count against its receive limit */

/* The socket's path, for messages to people. */
static inline const char *rpc_path_of(const char *url)
{
    return strncmp(url, "ipc://", 6) == 0 ? url + 6 : url;
}

#endif
