/* What the tests of requests of the HTTP APIs share: a body is accepted, or refused by name. */
#ifndef MOED_TESTS_HTTP_ASK_CASES_H
#define MOED_TESTS_HTTP_ASK_CASES_H

#include "client/http/api/anthropic.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

typedef bool parser(struct ask *ask, const char *body, size_t len, struct problem *p);

static inline bool parse_message(struct ask *ask, const char *body, size_t len, struct problem *p)
{
    return parse_messages(ask, body, len, false, p);
}

static inline struct ask accept(parser *parse, const char *body)
{
    struct ask ask;
    struct problem p = {0};
    ask_init(&ask);
    if (!parse(&ask, body, strlen(body), &p))
        fail_msg("%s: %s", body, p.message);
    return ask;
}

/* parameter, message: NULL: any */
static inline void refuse_because(parser *parse, const char *body, const char *parameter,
                                  const char *message)
{
    struct ask ask;
    struct problem p = {0};
    ask_init(&ask);
    if (parse(&ask, body, strlen(body), &p))
        fail_msg("%s is accepted", body);
    assert_int_equal(p.status, 400);
    assert_true(p.message[0]);
    if (parameter)
        assert_string_equal(p.parameter, parameter);
    if (message)
        assert_string_equal(p.message, message);
    ask_fini(&ask);
}

static inline void refuse(parser *parse, const char *body, const char *parameter)
{
    refuse_because(parse, body, parameter, NULL);
}

#define CHAT(more) "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]" more "}"

#endif
