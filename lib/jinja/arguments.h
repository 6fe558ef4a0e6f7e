/* The arguments of a filter, test, method or function of the engine. */
#ifndef MOED_JINJA_ARGUMENTS_H
#define MOED_JINJA_ARGUMENTS_H

#include "jinja/value.h"

/* Puts the arguments, by position or by name, into out[0..n) in the order of names; MISSING where
 * one was not given. Ends the run if a required one is missing or one is unknown. name: of the
 * function, for the message. */
void arguments_bind(struct run *r, const char *name, const struct arguments *a,
                    const char *const *names, size_t n, size_t required, struct value *out);

/* An integer, `otherwise` where v is missing. */
int64_t argument_integer(struct run *r, struct value v, int64_t otherwise);
/* A string; ends the run for anything else, with `what` in the message. */
const struct text *argument_text(struct run *r, struct value v, const char *what);

#endif
