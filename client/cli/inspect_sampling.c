/* moed inspect: the model's sampling defaults (docs/sampling.md). */
#include "client/cli/inspect.h"
#include "client/cli/fold.h"

#include "model/sampling.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Parameters of s that are not neutral, but temperature always: "temperature 0.8, min_p 0.05". */
static void print_parameters(const struct sampling *s)
{
    const struct sampling neutral = sampling_neutral();
    fold_printf("temperature %g", (double)s->temperature);
#define PRINT_FLOAT(name, low, high, usual)                                                        \
    if (s->name != neutral.name && strcmp(#name, "temperature") != 0)                              \
        fold_printf(", %s %g", #name, (double)s->name);
#define PRINT_COUNT(name, high, usual)                                                             \
    if (s->name != neutral.name)                                                                   \
        fold_printf(", %s %" PRIu32, #name, s->name);
    SAMPLING_FLOATS(PRINT_FLOAT)
    SAMPLING_COUNTS(PRINT_COUNT)
    if (strcmp(s->order, SAMPLING_ORDER) != 0)
        fold_printf(", order %s", s->order);
}

void inspect_print_sampling(const struct gguf *g)
{
    struct strbuf notes = {0};
    struct sampling s = sampling_of_model(g, &notes);
    fold_printf("sampling        ");
    print_parameters(&s);
    if (notes.len)
        fold_printf("; left out: %.2000s", notes.data);
    fold_printf("\n");
    strbuf_fini(&notes);
}

void inspect_add_sampling(struct strbuf *b, const struct gguf *g)
{
    struct sampling s = sampling_of_model(g, NULL);
    strbuf_printf(b, ", \"sampling\": {\"order\": \"%s\"", s.order);
#define ADD_FLOAT(name, low, high, neutral)                                                        \
    if (strcmp(#name, "mirostat_mu") != 0)                                                         \
        strbuf_printf(b, ", \"%s\": %.7g", #name, (double)s.name);
#define ADD_COUNT(name, high, neutral) strbuf_printf(b, ", \"%s\": %" PRIu32, #name, s.name);
    SAMPLING_FLOATS(ADD_FLOAT)
    SAMPLING_COUNTS(ADD_COUNT)
    strbuf_printf(b, "}");
}
