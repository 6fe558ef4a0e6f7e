/* What the files of lib/chat share. */
#ifndef MOED_CHAT_INTERNAL_H
#define MOED_CHAT_INTERNAL_H

#include "chat/chat_template.h"

struct chat_variant {
    char *source; /* NULL: there is no such variant */
    struct jinja_template *jinja;
    struct chat_abilities abilities;
};

struct chat_template {
    struct chat_variant basic, tools;
    json_t *trusted; /* bos_token and eos_token */
    bool plain;
};

/* Fills v->abilities (probe.c). False: no memory. */
bool chat_probe(struct chat_variant *v, const json_t *trusted);

/* The variant of conversations with tools, or without. */
static inline const struct chat_variant *chat_choose_variant(const struct chat_template *t,
                                                             bool tools)
{
    return tools && t->tools.source ? &t->tools : &t->basic;
}

/* A copy of the messages as the template takes them, owned by the caller (messages.c). */
enum error_code chat_messages_fit(const struct chat_abilities *a, const json_t *messages,
                                  json_t **out, struct error *e);

/* A copy of the tools in which each function has a description and parameters with properties, as
 * some templates demand (tools.c). Owned by the caller; NULL: no memory. */
json_t *chat_tools_fit(const json_t *tools);

#endif
