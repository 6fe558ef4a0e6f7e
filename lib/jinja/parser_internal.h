/* What expressions.c and primary.c share. */
#ifndef MOED_JINJA_PARSER_INTERNAL_H
#define MOED_JINJA_PARSER_INTERNAL_H

#include "jinja/parser.h"

struct item_list { /* grows in the arena */
    const struct expression **items;
    int *operators;
    size_t count, capacity;
};

void parse_item_add(struct parser *p, struct item_list *l, const struct expression *e,
                    int operator);
struct expression *parse_with_items(struct expression *e, const struct item_list *l);

/* A literal, a name or something in brackets. */
const struct expression *parse_primary(struct parser *p);
const struct expression *parse_name_or_constant(struct parser *p);
/* a with the attributes, items and calls behind it. */
const struct expression *parse_postfix(struct parser *p, const struct expression *a);
const struct expression *parse_attribute(struct parser *p, const struct expression *a);
/* a with the filters and tests behind it. */
const struct expression *parse_filters_and_tests(struct parser *p, const struct expression *a);

#endif
