/* The values of a template: Python's, as far as templates meet them.
 *
 * Values live in a run's arena. Lists and dicts are references: two values may share one. */
#ifndef MOED_JINJA_VALUE_H
#define MOED_JINJA_VALUE_H

#include "jinja/text.h"

enum value_kind {
    VALUE_MISSING, /* no value: an argument that was not given */
    VALUE_UNDEFINED,
    VALUE_NONE,
    VALUE_BOOL,
    VALUE_INT,
    VALUE_FLOAT,
    VALUE_STRING,
    VALUE_SEQUENCE,
    VALUE_DICT,
    VALUE_NAMESPACE,
    VALUE_LOOP,
    VALUE_MACRO,
    VALUE_FUNCTION, /* a function of the engine, or a method bound to its object */
};

struct undefined;
struct loop;
struct macro;
struct function;

struct value {
    enum value_kind kind;
    union {
        bool truth;
        int64_t integer;
        double real;
        const struct text *text;
        struct sequence *sequence;
        struct dict *dict; /* of a namespace too */
        const struct undefined *undefined;
        struct loop *loop;
        const struct macro *macro;
        const struct function *function;
    };
};

/* Lists, and Python's other sequences with all their elements. */
enum sequence_kind {
    SEQUENCE_LIST,
    SEQUENCE_TUPLE,
    SEQUENCE_RANGE,
    SEQUENCE_KEYS,      /* of a dict */
    SEQUENCE_VALUES,    /* of a dict */
    SEQUENCE_ITEMS,     /* of a dict */
    SEQUENCE_GENERATOR, /* what `map`, `select` and others return: read once, no length */
};

struct sequence {
    enum sequence_kind kind;
    struct value *items;
    size_t count, capacity;
    size_t taken;     /* elements that iterating over a generator has used up */
    int64_t range[3]; /* start, stop, step of a range */
    bool group;       /* of groupby: a tuple whose items have the names grouper and list */
};

struct dict_entry {
    struct value key, value;
};

struct dict { /* in the order of insertion */
    struct dict_entry *entries;
    size_t count, capacity;
};

/* Why a value is undefined: the text of the error when it is used. */
struct undefined {
    const char *message;
};

struct arguments {
    const struct value *items;
    size_t count;
    const struct named_value *named;
    size_t named_count;
};

struct named_value {
    const struct text *name;
    struct value value;
};

/* self: what a method was taken from, or what a filter is applied to. */
typedef struct value function_call(struct run *r, struct value self, const struct arguments *a);

struct function {
    const char *name;
    function_call *call;
    struct value self;
};

static inline struct value value_none(void)
{
    return (struct value){.kind = VALUE_NONE};
}
static inline struct value value_bool(bool truth)
{
    return (struct value){.kind = VALUE_BOOL, .truth = truth};
}
static inline struct value value_int(int64_t integer)
{
    return (struct value){.kind = VALUE_INT, .integer = integer};
}
static inline struct value value_float(double real)
{
    return (struct value){.kind = VALUE_FLOAT, .real = real};
}
static inline struct value value_text(const struct text *text)
{
    return (struct value){.kind = VALUE_STRING, .text = text};
}
static inline struct value value_string(struct run *r, const char *literal)
{
    return value_text(text_from(r, literal));
}

/* A value that prints as nothing; using it further ends the run with this message. */
struct value value_undefined(struct run *r, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Ends the run if v is undefined: what Python does when an operation meets one. */
void value_require(struct run *r, struct value v);

struct value value_sequence(struct run *r, enum sequence_kind kind, size_t capacity);
void sequence_add(struct run *r, struct sequence *s, struct value v);
struct value value_pair(struct run *r, struct value a, struct value b); /* a tuple */
struct value value_dict(struct run *r, enum value_kind kind); /* VALUE_DICT or _NAMESPACE */
struct value *dict_find(struct run *r, const struct dict *d, struct value key); /* NULL: absent */
struct value *dict_find_name(struct run *r, const struct dict *d, const struct text *name);
void dict_set(struct run *r, struct dict *d, struct value key, struct value v);
/* Adds a key that the dict does not have. */
void dict_add(struct run *r, struct dict *d, struct value key, struct value v);
struct value dict_view(struct run *r, const struct dict *d, enum sequence_kind kind);

/* Ends the run if v is a list or a dict, which are no keys. */
void value_require_hashable(struct run *r, struct value v);

bool value_truth(struct value v);
bool value_equal(struct run *r, struct value a, struct value b);
/* <0, 0, >0. Values that Python does not order end the run; op is for the message. */
int value_compare(struct run *r, struct value a, struct value b, const char *op);
bool value_contains(struct run *r, struct value container, struct value item);

/* The elements as Python's iter() gives them, in a sequence that the caller only reads: a string's
 * characters, a dict's keys. Uses a generator up. Values without elements end the run. */
struct sequence *value_elements(struct run *r, struct value v);
bool value_is_iterable(struct value v);
bool value_length(struct value v, size_t *length); /* false: it has none */

const char *value_type_name(struct value v);             /* "str" */
bool value_is_number(struct value v, double *number);    /* bool, int or float */
bool value_is_integer(struct value v, int64_t *integer); /* bool or int */

/* ---- Text of values ---- */

void value_print(struct text_builder *b, struct value v);        /* str() */
void value_repr(struct text_builder *b, struct value v);         /* repr() */
const struct text *value_to_text(struct run *r, struct value v); /* str() */
void value_print_float(struct text_builder *b,
                       double real); /* repr(), the shortest that reads back */

#endif
