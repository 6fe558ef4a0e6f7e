/* The worker's limit of reasoning; see worker_limit.h. */
#include "client/http/api/worker_limit.h"

#include <string.h>

/* What may end the reasoning: its mark, and what begins calls or the text where that counts. */
static void list_ends(struct worker_limit *l, const struct answer *a)
{
    const struct tool_format *f = a->chat.style.format;
    const char *ends[] = {a->chat.style.reasoning->end, f->section_begin, f->call_begin,
                          f->text_begin};
    bool calls = a->ask.tool_list && (a->ask.calls == CALLS_AUTO || f->ends_reasoning);
    bool counts[] = {true, calls, calls, f->ends_reasoning};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (ends[i] && counts[i])
            l->ends[l->options.end_count++] = ends[i];
    l->options.ends = l->ends;
}

static enum moed_code tokenize_mark(const struct answer *a, const char *mark, uint32_t **ids,
                                    size_t *n, struct moed_error *error)
{
    return moed_tokenize(a->deployment->answering.session, mark, strlen(mark), MOED_PARSE_SPECIAL,
                         ids, n, error);
}

enum moed_code worker_limit_init(struct answer *a, struct moed_error *error)
{
    struct worker_limit *l = &a->limit;
    const struct reasoning_marks *marks = a->ask.messages ? a->chat.style.reasoning : NULL;
    size_t n_forced = 0, n_forbidden = 0;
    if (!a->ask.reasoning_budget || !marks)
        return MOED_OK;
    enum moed_code code = tokenize_mark(a, marks->end, &l->forced, &n_forced, error);
    if (!code)
        code = tokenize_mark(a, marks->begin, &l->forbidden, &n_forbidden, error);
    if (code || !n_forced)
        return code;
    l->options = (struct moed_reasoning_limit){
        .size = sizeof l->options,
        .tokens = a->ask.reasoning_budget,
        .begin = a->chat.reasoning_open ? NULL : marks->begin,
        .forced = l->forced,
        .forced_count = n_forced,
        .forbidden = l->forbidden,
        .forbidden_count = n_forbidden == 1 ? 1 : 0, /* those of a longer mark are in other texts */
    };
    list_ends(l, a);
    return MOED_OK;
}

void worker_limit_fini(struct worker_limit *l)
{
    moed_free(l->forced);
    moed_free(l->forbidden);
    *l = (struct worker_limit){0};
}
