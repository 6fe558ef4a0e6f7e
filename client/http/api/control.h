/* POST /moed/policy and /moed/resize, with an admin key (docs/http.md). */
#ifndef MOED_HTTP_API_CONTROL_H
#define MOED_HTTP_API_CONTROL_H

#include "client/http/server/exchange.h"

void handle_policy(struct exchange *x);
void handle_resize(struct exchange *x);

#endif
