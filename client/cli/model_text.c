/* Texts and their tokens; see model_text.h. */
#include "client/cli/model_text.h"

#include "client/cli/ask.h"
#include "model/params.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* True where the model's texts begin with its begin token. It tries, because the defaults of the
 * file's keys differ between tokenizers. */
static bool find_begin_token(struct model_text *m, struct error *e)
{
    struct token_list plain = {0}, whole = {0};
    bool ok = !tokenizer_encode(m->tokenizer, "a", 1, 0, &plain, e) &&
              !tokenizer_encode(m->tokenizer, "a", 1, TOKENIZE_ADD_SPECIAL, &whole, e);
    if (ok && whole.count > plain.count && whole.ids[0] == tokenizer_bos(m->tokenizer)) {
        m->has_begin_token = true;
        m->begin_token = whole.ids[0];
    }
    token_list_fini(&plain);
    token_list_fini(&whole);
    return ok;
}

bool model_text_open(struct model_text *m, const struct gguf *g)
{
    struct error e;
    struct model_params params;
    bool ok = !model_params_read(g, &params, &e) && !tokenizer_new(g, NULL, &m->tokenizer, &e) &&
              find_begin_token(m, &e);
    if (ok)
        m->context_trained = params.context_trained;
    else
        cli_complain("%s", e.text);
    return ok;
}

bool model_text_read(const char *path, struct strbuf *text)
{
    if (strcmp(path, "-") == 0)
        return ask_text(path, text);
    char block[1 << 16];
    FILE *f = fopen(path, "re");
    for (size_t n = 1; f && n > 0;) {
        n = fread(block, 1, sizeof block, f);
        strbuf_append(text, block, n);
    }
    bool ok = f && !ferror(f) && !text->failed;
    if (!ok)
        cli_complain("cannot read %s: %s", path, text->failed ? "no memory" : strerror(errno));
    if (f)
        fclose(f);
    return ok;
}

void model_text_close(struct model_text *m)
{
    tokenizer_free(m->tokenizer);
    *m = (struct model_text){0};
}

uint64_t model_text_context(const struct model_text *m)
{
    return m->context_trained && m->context_trained < MODEL_TEXT_CONTEXT ? m->context_trained
                                                                         : MODEL_TEXT_CONTEXT;
}
