/* The functions that every template has: range, dict, namespace, raise_exception, strftime_now. */
#ifndef MOED_JINJA_FUNCTIONS_H
#define MOED_JINJA_FUNCTIONS_H

#include "jinja/interpreter.h"

void functions_define(struct run *r, struct scope *globals);

#endif
