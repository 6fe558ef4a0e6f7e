/* Runs a template's tree: scopes, statements, expressions.
 *
 * Scopes follow Jinja: `if` has none; the body of a loop (each time), a macro, a `set` block, a
 * filter block and `with` have one. A name is looked up from the innermost scope outwards and then
 * among the globals; `set` writes to the innermost. A macro's scope is inside the one that defined
 * it. */
#ifndef MOED_JINJA_INTERPRETER_H
#define MOED_JINJA_INTERPRETER_H

#include "jinja/syntax.h"

struct binding {
    const struct text *name;
    struct value value;
};

struct scope {
    struct scope *outer;
    struct binding *bindings;
    size_t count, capacity;
    bool kept; /* a macro or a loop's test may read it later: it is not used again */
};

struct macro {
    const struct macro_syntax *syntax;
    struct scope *scope; /* where it was defined */
};

/* The `loop` variable. Elements that the loop's test refuses are skipped as they come, because the
 * body may change what the test reads. */
struct loop {
    const struct statement *statement;
    struct scope *scope; /* around the loop */
    struct sequence *source;
    size_t next;              /* of the source's elements */
    struct scope *test_scope; /* of the statement's test, for all elements */
    struct value before, current, after;
    bool has_before, has_after;
    size_t index0;
    struct value changed; /* the arguments of the last loop.changed() */
};

enum flow { FLOW_NEXT, FLOW_BREAK, FLOW_CONTINUE };

/* ---- Scopes (scope.c) ---- */

struct scope *scope_new(struct run *r, struct scope *outer);
/* An empty scope in place of `old` (NULL: none), whose memory it takes unless that is kept. */
struct scope *scope_again(struct run *r, struct scope *old, struct scope *outer);
/* Keeps a scope and those around it. */
void scope_keep(struct scope *s);
void scope_set(struct run *r, struct scope *s, const struct text *name, struct value v);
/* An undefined value where no scope has the name. */
struct value scope_get(struct run *r, const struct scope *s, const struct text *name);

/* ---- Statements (execute.c) ---- */

enum flow execute(struct run *r, struct scope *s, const struct statement *first,
                  struct text_builder *out);
/* The text that a body makes. */
struct value execute_capture(struct run *r, struct scope *s, const struct statement *body);

/* ---- Loops (loop.c) ---- */

bool loop_advance(struct run *r, struct loop *l); /* false: no further element */
struct value loop_attribute(struct run *r, struct loop *l, const struct text *name);

/* ---- Expressions (evaluate.c, operators.c, access.c, call.c) ---- */

struct value evaluate(struct run *r, struct scope *s, const struct expression *e);
/* Assigns to a name, to ns.name, or element by element to a tuple. */
void assign_target(struct run *r, struct scope *s, const struct expression *target, struct value v);
struct value binary(struct run *r, int operator, struct value a, struct value b);
struct value negate(struct run *r, struct value v, bool negative);
bool compare_values(struct run *r, int operator, struct value a, struct value b);

/* v.name; undefined if there is none. */
struct value attribute_get(struct run *r, struct value v, const struct text *name);
/* v[key] */
struct value item_get(struct run *r, struct value v, struct value key);
struct value slice_get(struct run *r, struct value v, const struct value part[3]);
/* v.a.b.0 by the dotted path that `attribute=` takes; an integer is an index. */
struct value path_get(struct run *r, struct value v, struct value path);
/* The same; what is undefined at a part of the path becomes `otherwise`, unless that is MISSING. */
struct value path_get_or(struct run *r, struct value v, struct value path, struct value otherwise);

struct value call_value(struct run *r, struct value callee, const struct arguments *a);
struct value call_expression(struct run *r, struct scope *s, const struct expression *e,
                             const struct named_value *extra);
/* Applies e, a filter or a chain of filters; `inner` stands for a NULL at its start. */
struct value apply_filters(struct run *r, struct scope *s, const struct expression *e,
                           struct value inner);
struct value call_filter(struct run *r, const struct text *name, struct value v,
                         const struct arguments *a);
bool call_test(struct run *r, const struct text *name, struct value v, const struct arguments *a);

#endif
