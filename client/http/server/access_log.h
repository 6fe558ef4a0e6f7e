/* The access log: one line a request, on standard error. Never an
 * answer, and a prompt only where `body` is set. */
#ifndef MOED_HTTP_ACCESS_LOG_H
#define MOED_HTTP_ACCESS_LOG_H

#include "client/http/server/client_address.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ACCESS_IGNORED 192

struct access_entry {
    char id[24];                       /* of the request: "req-..." */
    char key[33];                      /* the API key's name; empty: none */
    char trace[33];                    /* the trace id of `traceparent`; empty: none */
    char client[CLIENT_ADDRESS_BYTES]; /* the client's address; empty: not known */
    char request_id[129];              /* the client's X-Request-Id; empty: none that fits */
    char model[96];                    /* empty: the request names none */
    const char *method;
    char path[96];
    char ignored[ACCESS_IGNORED]; /* parameters that no table has, separated by commas */
    int status;
    const char *outcome; /* "ok", "left", "slow", "refused" ...: a literal */
    bool tokens;         /* there is tokens_out, and what the next two say */
    bool in_known, cached_known;
    uint64_t tokens_in, tokens_cached, tokens_out;
    uint64_t tokens_drafted, tokens_accepted;  /* drafts; 0: the line does not have them */
    uint64_t begin_ns, first_token_ns, end_ns; /* first_token_ns 0: none came */
    uint64_t bytes_out;
    const char *body; /* of the request, where it is to be logged; NULL: it is not */
    size_t body_bytes;
};

/* A new id for a request. */
void access_new_id(char id[24]);
/* Takes the trace id out of a `traceparent` header (W3C Trace Context, section 3.2); leaves `trace`
 * empty where the header is malformed. */
void access_take_trace(const char *header, char trace[33]);
/* `ignored` as a header's value: any byte but those of names becomes '_'. "": there is none. */
void access_ignored_header(const struct access_entry *a, char out[ACCESS_IGNORED]);
/* Takes an X-Request-Id of 1 to 128 printable ASCII characters without blanks; leaves `id` empty
 * where it is another. */
void access_take_request_id(const char *header, char id[129]);
/* An answered question of a load balancer or of Prometheus: to /health, /v1/health, /livez, /readyz
 * or /metrics. */
bool access_is_probe(const struct access_entry *a);
/* Writes the line: of level debug for probes. */
void access_write(const struct access_entry *a, bool json);

#endif
