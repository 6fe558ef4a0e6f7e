/* Further names of models; see model_names.h. */
#include "client/http/model/model_names.h"

#include <stdlib.h>
#include <string.h>

bool model_names_same(const char *name, const char *asked)
{
    size_t n = strlen(name);
    return n && strncmp(name, asked, n) == 0 && (!asked[n] || strcmp(asked + n, ":latest") == 0);
}

static struct model_alias *find(const struct model_names *n, const char *asked)
{
    for (size_t i = 0; i < n->count; i++)
        if (model_names_same(n->items[i].name, asked))
            return &n->items[i];
    return NULL;
}

const char *model_names_find(const struct model_names *n, const char *asked)
{
    const struct model_alias *alias = find(n, asked);
    return alias ? alias->model : asked;
}

/* Spaces around it do not count. False: it is empty, or too long. */
static bool copy_name(const char *text, size_t len, char out[MODEL_NAME_BYTES])
{
    while (len && *text == ' ') {
        text++;
        len--;
    }
    while (len && text[len - 1] == ' ')
        len--;
    if (!len || len >= MODEL_NAME_BYTES)
        return false;
    memcpy(out, text, len);
    out[len] = '\0';
    return true;
}

/* text[0..len): "NAME" or "NAME=MODEL" */
static enum error_code add_one(struct model_names *n, const char *text, size_t len, struct error *e)
{
    struct model_alias alias = {0};
    const char *equals = memchr(text, '=', len), *end = text + len;
    if (!copy_name(text, equals ? (size_t)(equals - text) : len, alias.name) ||
        (equals && !copy_name(equals + 1, (size_t)(end - equals) - 1, alias.model)))
        return error_set(e, ERROR_USAGE, "--alias: '%.*s' is not NAME or NAME=MODEL", (int)len,
                         text);
    struct model_alias *known = find(n, alias.name);
    if (!known) {
        struct model_alias *grown = realloc(n->items, (n->count + 1) * sizeof *grown);
        if (!grown)
            return error_set(e, ERROR_MEMORY, "no memory for the aliases");
        n->items = grown;
        known = &grown[n->count++];
    }
    *known = alias;
    return ERROR_OK;
}

enum error_code model_names_add(struct model_names *n, const char *list, struct error *e)
{
    for (;; list++) {
        size_t len = strcspn(list, ",");
        enum error_code code = add_one(n, list, len, e);
        list += len;
        if (code || !*list)
            return code;
    }
}

void model_names_unknown(struct problem *p, const char *model)
{
    problem_fill(p, 404,
                 "there is no model '%.100s': GET /v1/models lists them (--alias and --any-model "
                 "of moed serve accept other names)",
                 model);
    p->code = "model_not_found";
}

void model_names_fini(struct model_names *n)
{
    free(n->items);
    *n = (struct model_names){.count = 0};
}
