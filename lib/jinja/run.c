/* Limits and errors of a run; see run.h. */
#include "jinja/run.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

noreturn void run_fail(struct run *r, enum error_code code, const char *format, ...)
{
    char text[ERROR_TEXT_BYTES - 40];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    r->code = error_set(r->error, code, "template line %d: %s", r->line, text);
    longjmp(r->failed, 1);
}

void *run_alloc(struct run *r, size_t bytes)
{
    void *memory = arena_alloc(&r->arena, bytes);
    if (!memory)
        run_fail(r, ERROR_LIMIT, "the template needs more memory than the limit of %zu bytes",
                 r->arena.limit);
    return memory;
}

void *run_alloc_array(struct run *r, size_t count, size_t element_bytes)
{
    size_t bytes;
    if (__builtin_mul_overflow(count, element_bytes, &bytes))
        bytes = SIZE_MAX;
    void *memory = run_alloc(r, bytes);
    memset(memory, 0, bytes);
    return memory;
}

noreturn void run_fail_steps(struct run *r)
{
    run_fail(r, ERROR_LIMIT, "the template takes too many steps");
}

noreturn void run_fail_depth(struct run *r)
{
    run_fail(r, ERROR_LIMIT, "the template or its data is nested too deeply");
}
