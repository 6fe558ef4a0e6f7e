/* What both ends of rpc.h agree on. Internal to lib/ipc. */
#ifndef MOED_IPC_RPC_WIRE_H
#define MOED_IPC_RPC_WIRE_H

#include "base/error.h"

#include <stdint.h>
#include <string.h>

#define RPC_GREETING     0x3174636du /* "mct1": the version of the framing too */
#define RPC_PREFIX_BYTES sizeof(uint32_t)

/* The path of ipc://PATH, in url itself. ERROR_USAGE for another form. */
static inline enum error_code rpc_path_of(const char *url, const char **path, struct error *e)
{
    if (strncmp(url, "ipc://", 6) != 0 || url[6] == '\0')
        return error_set(e, ERROR_USAGE, "'%s' is not of the form ipc://PATH", url);
    *path = url + 6;
    return ERROR_OK;
}

static inline uint32_t rpc_length_at(const uint8_t *prefix)
{
    uint32_t len;
    memcpy(&len, prefix, sizeof len);
    return len;
}

#endif
