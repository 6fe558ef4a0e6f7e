/* Which path has which handler. */
#ifndef MOED_HTTP_ROUTES_H
#define MOED_HTTP_ROUTES_H

#include "client/http/server/exchange.h"

extern const struct route routes[]; /* ends with a NULL path */

#endif
