/* The options of `moed up` that are defaults of requests: of sampling and of chats. What the worker
 * would refuse, or each chat, is refused before the start. */
#ifndef MOED_CLI_REQUEST_DEFAULTS_H
#define MOED_CLI_REQUEST_DEFAULTS_H

#include "daemon/deployment_options.h"

#include <stdbool.h>

/* Makes the path of --chat-template absolute: the worker has another working directory. It stays
 * valid until the next call. False: it has complained to the user of `verb`. */
bool request_defaults_check(struct deployment_options *o, const char *verb);

#endif
