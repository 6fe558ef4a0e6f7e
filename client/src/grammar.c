/* libmoed: a grammar as a message; see grammar.h. */
#include "client/src/grammar.h"

#include "client/src/error.h"

#include <stdlib.h>
#include <string.h>

/* Without a length: up to the NUL. */
static ProtobufCBinaryData data_of(const char *text, size_t bytes)
{
    return (ProtobufCBinaryData){text && !bytes ? strlen(text) : bytes, (uint8_t *)text};
}

enum moed_code grammar_message_init(struct grammar_message *m, const struct moed_grammar *g,
                                    Moed__V1__Grammar **out, struct moed_error *error)
{
    *m = (struct grammar_message){.message = MOED__V1__GRAMMAR__INIT};
    *out = NULL;
    if (g->kind == MOED_GRAMMAR_NONE)
        return MOED_OK;
    if ((unsigned)g->kind > MOED_GRAMMAR_CHOICES)
        return error_report(error, MOED_ERROR_USAGE, false, "unknown kind of grammar %d",
                            (int)g->kind);
    m->marks = calloc(g->mark_count + 1, sizeof *m->marks);
    if (!m->marks)
        return error_report(error, MOED_ERROR_MEMORY, false, "no memory for the grammar");
    for (size_t i = 0; i < g->mark_count; i++)
        m->marks[i] = (ProtobufCBinaryData){strlen(g->marks[i]), (uint8_t *)g->marks[i]};
    m->message.kind = (Moed__V1__Grammar__Kind)g->kind; /* the same values */
    m->message.text = data_of(g->text, g->text_bytes);
    m->message.trigger = data_of(g->trigger, g->trigger_bytes);
    m->message.trigger_required = g->trigger_required;
    m->message.reasoning_begin = data_of(g->reasoning_begin, 0);
    m->message.reasoning_end = data_of(g->reasoning_end, 0);
    m->message.n_marks = g->mark_count;
    m->message.marks = m->marks;
    *out = &m->message;
    return MOED_OK;
}

void grammar_message_fini(struct grammar_message *m)
{
    free(m->marks);
}
