/* Calls that are written as literals of another language, into JSON: LFM2's list of Python calls
 * and Gemma's objects. */
#ifndef MOED_TOOLCALL_LITERAL_H
#define MOED_TOOLCALL_LITERAL_H

#include "base/strbuf.h"

#include <stdbool.h>
#include <stddef.h>

enum { LITERAL_DEPTH_MAX = 64 };

/* A call that was read; arguments: a JSON object. False ends the reading with false. */
typedef bool literal_call_fn(void *context, const char *name, size_t name_len,
                             const struct strbuf *arguments);

/* [f(a="x", b=[1, None]), g()]: keyword arguments only, whose values are literals. */
bool literal_python(const char *text, size_t len, literal_call_fn *take, void *context);
/* call:f{a:<|"|>x<|"|>,b:[1,null]}, once or several times. */
bool literal_gemma(const char *text, size_t len, literal_call_fn *take, void *context);

/* A Python literal: appends its JSON to out, unless it is none. */
bool literal_python_value(const char *text, size_t len, struct strbuf *out);

#endif
