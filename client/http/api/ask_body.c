/* See ask_body.h. */
#include "client/http/api/ask_body.h"

bool ask_body(struct exchange *x, struct ask *ask, ask_parser *parse)
{
    struct problem p = {0};
    ask_init(ask);
    if (parse(ask, x->body.data, x->body.len, &p))
        return true;
    ask_fini(ask);
    exchange_fail(x, &p);
    return false;
}
