/* API keys, from a file: one a line, `NAME KEY` or only `KEY`; # starts a comment. NAME stands in
 * the log, KEY never does. */
#ifndef MOED_HTTP_AUTH_H
#define MOED_HTTP_AUTH_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>

#define AUTH_KEY_BYTES  256
#define AUTH_NAME_BYTES 33
#define AUTH_KEYS_MAX   256

struct auth_key {
    char name[AUTH_NAME_BYTES];
    char key[AUTH_KEY_BYTES]; /* padded with zeros */
};

struct auth {
    struct auth_key *keys;
    size_t count;     /* 0: every request is allowed */
    const char *kind; /* of keys without a name: that and a number */
};

/* Reads the file, which others than its owner must not be able to read. kind: "key"; borrowed.
 * ERROR_IO: it cannot be read; ERROR_USAGE, its mode is wrong; other errors: what it holds. */
enum error_code auth_read(const char *path, const char *kind, struct auth *out, struct error *e);
void auth_free(struct auth *a);
/* Whether both have the same keys with the same names, in the same order. */
bool auth_same(const struct auth *a, const struct auth *b);

/* Checks `Authorization: Bearer KEY` and `x-api-key: KEY`; either may be NULL. Returns the key's
 * name, or NULL where no key fits. The time does not depend on which key or how much of it fits. */
const char *auth_check(const struct auth *a, const char *authorization, const char *x_api_key);

#endif
