/* Names; see interpreter.h. */
#include "jinja/interpreter.h"

#include <string.h>

struct scope *scope_new(struct run *r, struct scope *outer)
{
    struct scope *s = run_alloc_array(r, 1, sizeof *s);
    s->outer = outer;
    return s;
}

struct scope *scope_again(struct run *r, struct scope *old, struct scope *outer)
{
    if (!old || old->kept)
        return scope_new(r, outer);
    old->outer = outer;
    old->count = 0;
    return old;
}

void scope_keep(struct scope *s)
{
    for (; s && !s->kept; s = s->outer)
        s->kept = true;
}

static struct binding *find(const struct scope *s, const struct text *name)
{
    for (size_t i = 0; i < s->count; i++)
        if (text_equal(s->bindings[i].name, name))
            return &s->bindings[i];
    return NULL;
}

void scope_set(struct run *r, struct scope *s, const struct text *name, struct value v)
{
    run_work(r, s->count / 8);
    struct binding *b = find(s, name);
    if (b) {
        b->value = v;
        return;
    }
    if (s->count == s->capacity) {
        size_t capacity = s->capacity ? 2 * s->capacity : 4;
        struct binding *bindings = run_alloc_array(r, capacity, sizeof *bindings);
        if (s->count)
            memcpy(bindings, s->bindings, s->count * sizeof *bindings);
        s->bindings = bindings;
        s->capacity = capacity;
    }
    s->bindings[s->count++] = (struct binding){name, v};
}

struct value scope_get(struct run *r, const struct scope *s, const struct text *name)
{
    for (; s; s = s->outer) {
        run_work(r, s->count / 8);
        const struct binding *b = find(s, name);
        if (b)
            return b->value;
    }
    return value_undefined(r, "'%.*s' is undefined", (int)name->len, name->data);
}
