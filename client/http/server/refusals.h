/* What libmicrohttpd refuses by itself, before a handler sees it: a request line, header fields or
 * chunks that it cannot read, and headers that its pool cannot hold. Its own reply is a page of
 * HTML; this module puts an error of the API in its place. */
#ifndef MOED_HTTP_REFUSALS_H
#define MOED_HTTP_REFUSALS_H

#include <microhttpd.h>

/* Queues a reply of moed-http. Every other reply is libmicrohttpd's own. */
enum MHD_Result refusals_pass(struct MHD_Connection *mhd, unsigned status,
                              struct MHD_Response *reply);

#endif
