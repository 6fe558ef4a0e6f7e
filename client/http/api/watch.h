/* GET /moed/map and /moed/events: the placement map of a deployment, once or as events
 * (docs/http.md).
 */
#ifndef MOED_HTTP_API_WATCH_H
#define MOED_HTTP_API_WATCH_H

#include "client/http/server/exchange.h"

void handle_map(struct exchange *x);
void handle_events(struct exchange *x);

#endif
