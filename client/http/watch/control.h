/* What `moed policy POLICY` and `moed resize` do, for moed-http. Any thread; they wait for the
 * processes. */
#ifndef MOED_HTTP_CONTROL_H
#define MOED_HTTP_CONTROL_H

#include "base/error.h"
#include "base/strbuf.h"

#include <stdint.h>

/* Appends the policy that is in force then, with its parts. */
enum error_code control_set_policy(const char *run, const char *policy, struct strbuf *out,
                                   struct error *e);
/* Appends how much experts have at present; memd goes on after the return. */
enum error_code control_resize(const char *run, uint64_t device_bytes, struct strbuf *out,
                               struct error *e);

#endif
