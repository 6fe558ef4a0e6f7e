/* Python's "%" and str.format, for strings of templates; and the escaping of HTML. */
#ifndef MOED_JINJA_FORMAT_H
#define MOED_JINJA_FORMAT_H

#include "jinja/value.h"

/* format % value: conversions s r d i x X o c f F e E g G %, with flags, width and precision. */
struct value format_percent(struct run *r, const struct text *format, struct value v);
/* format.format(arguments) */
struct value format_braces(struct run *r, const struct text *format, const struct arguments *a);
/* & < > " ' as entities */
void format_escape(struct text_builder *b, const struct text *t);

#endif
