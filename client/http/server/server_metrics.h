/* The server's own metrics, named as docs/http.md lists them. */
#ifndef MOED_HTTP_SERVER_METRICS_H
#define MOED_HTTP_SERVER_METRICS_H

#include "metrics/metrics.h"

struct server_metrics {
    struct counter *requests[6];  /* by the first digit of the status; [0]: no reply was sent */
    struct counter *probes;       /* answered probes (access_log.h), which are not in requests */
    struct counter *left;         /* clients that left before the end of the reply */
    struct counter *slow_readers; /* streams given up because the client did not read */
    struct counter *late;         /* connections closed at a deadline */
    struct counter *refused_keys;
    struct histogram *duration; /* of whole requests, seconds */
    struct gauge *connections, *streams;
};

void server_metrics_register(struct server_metrics *m, struct metrics *registry);

#endif
