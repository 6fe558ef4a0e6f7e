/* One compilation or one render: its arena, its limits, its clock, and the place that errors jump
 * to.
 *
 * run_fail does not return: it jumps to the public function that began the run (jinja.c). This is
 * safe because nothing inside the library owns memory outside the arena, except `parsed`, which the
 * public function frees. */
#ifndef MOED_JINJA_RUN_H
#define MOED_JINJA_RUN_H

#include "base/error.h"
#include "jinja/arena.h"

#include <jansson.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdnoreturn.h>

struct run {
    struct arena arena;
    uint64_t steps;           /* left */
    unsigned depth;           /* nested calls left */
    size_t output_limit;      /* bytes of one text that a render collects */
    int64_t now_s;            /* the clock of strftime_now, seconds since 1970; -1: the system's */
    int line;                 /* of the template, where an error would be */
    json_t *parsed;           /* what from_json is reading */
    const char *const *words; /* of struct jinja_input */
    jmp_buf failed;
    enum error_code code;
    struct error *error; /* may be NULL */
};

/* Ends the run. The text begins with "template line N: ". */
noreturn void run_fail(struct run *r, enum error_code code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* What Python would raise as a TypeError and the like: ERROR_USAGE. */
#define run_refuse(r, ...) run_fail(r, ERROR_USAGE, __VA_ARGS__)

void *run_alloc(struct run *r, size_t bytes);
/* count elements, cleared */
void *run_alloc_array(struct run *r, size_t count, size_t element_bytes);
noreturn void run_fail_steps(struct run *r);
noreturn void run_fail_depth(struct run *r);

/* Counts work: one step is some tens of machine instructions. */
static inline void run_work(struct run *r, uint64_t steps)
{
    if (steps > r->steps)
        run_fail_steps(r);
    r->steps -= steps;
}

/* A nested call, which C's stack must hold; undone by run_leave. */
static inline void run_enter(struct run *r)
{
    if (r->depth == 0)
        run_fail_depth(r);
    r->depth--;
}
static inline void run_leave(struct run *r)
{
    r->depth++;
}

#endif
