/* Vocabularies; see vocabulary.h. */
#include "client/http/model/vocabulary.h"

#include <stdio.h>
#include <stdlib.h>

#define TOKENS_A_CALL 16384

void vocabulary_release(struct vocabulary *v)
{
    /* acquire: the last one sees what others read before they released it */
    if (!v || atomic_fetch_sub_explicit(&v->references, 1, memory_order_acq_rel) != 1)
        return;
    strbuf_fini(&v->text);
    free(v->ends);
    free(v);
}

static enum moed_code no_memory(struct moed_error *error)
{
    *error = (struct moed_error){.code = MOED_ERROR_MEMORY};
    snprintf(error->message, sizeof error->message, "no memory for the texts of tokens");
    return MOED_ERROR_MEMORY;
}

static enum moed_code read_some(struct vocabulary *v, struct moed_session *session, uint32_t first,
                                uint32_t n, struct moed_error *error)
{
    uint32_t ids[TOKENS_A_CALL];
    char *text;
    size_t *ends, begin = v->text.len;
    for (uint32_t i = 0; i < n; i++)
        ids[i] = first + i;
    enum moed_code code = moed_token_texts(session, ids, n, &text, &ends, error);
    if (code)
        return code;
    for (uint32_t i = 0; i < n; i++)
        v->ends[first + i] = begin + ends[i];
    strbuf_append(&v->text, text, ends[n - 1]);
    moed_free(text);
    moed_free(ends);
    return v->text.failed ? no_memory(error) : MOED_OK;
}

static enum moed_code read_all(struct vocabulary *v, struct moed_session *session,
                               struct moed_error *error)
{
    struct moed_model *model;
    enum moed_code code = moed_model_get(session, &model, error);
    if (code)
        return code;
    v->count = model->vocab;
    moed_model_free(model);
    v->ends = malloc((v->count + 1) * sizeof *v->ends);
    if (!v->ends)
        return no_memory(error);
    for (uint32_t at = 0; at < v->count && !code; at += TOKENS_A_CALL) {
        uint32_t left = v->count - at;
        code = read_some(v, session, at, left < TOKENS_A_CALL ? left : TOKENS_A_CALL, error);
    }
    return code;
}

enum moed_code vocabulary_get(struct attachment *a, struct vocabulary **out,
                              struct moed_error *error)
{
    if (!a->vocabulary) {
        struct vocabulary *v = calloc(1, sizeof *v);
        if (!v)
            return no_memory(error);
        strbuf_init(&v->text);
        atomic_init(&v->references, 1);
        enum moed_code code = read_all(v, a->session, error);
        if (code) {
            vocabulary_release(v);
            return code;
        }
        a->vocabulary = v;
    }
    atomic_fetch_add_explicit(&a->vocabulary->references, 1, memory_order_relaxed);
    *out = a->vocabulary;
    return MOED_OK;
}

struct moed_bytes vocabulary_text(const struct vocabulary *v, uint32_t token)
{
    if (!v || token >= v->count)
        return (struct moed_bytes){"", 0};
    size_t begin = token ? v->ends[token - 1] : 0;
    return (struct moed_bytes){v->text.data + begin, v->ends[token] - begin};
}
