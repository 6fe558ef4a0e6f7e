/* What requests may call a model beside its own names: aliases, or any name at all. */
#ifndef MOED_HTTP_MODEL_NAMES_H
#define MOED_HTTP_MODEL_NAMES_H

#include "client/http/server/problem.h"

#include <stdbool.h>
#include <stddef.h>

enum { MODEL_NAME_BYTES = 96 };

struct model_alias {
    char name[MODEL_NAME_BYTES];
    char model[MODEL_NAME_BYTES]; /* empty: the default one */
};

struct model_names {
    struct model_alias *items;
    size_t count;
    bool any; /* a name that no model has stands for the default one */
};

/* Adds the aliases of a list, "NAME" or "NAME=MODEL" each, separated by commas. A later one of the
 * same name replaces the earlier. */
enum error_code model_names_add(struct model_names *n, const char *list, struct error *e);
void model_names_fini(struct model_names *n);

/* What the alias `asked` stands for, "": the default model; `asked` itself where it is none. */
const char *model_names_find(const struct model_names *n, const char *asked);

/* Whether `asked` is that name. Ollama's clients write "demo:latest". */
bool model_names_same(const char *name, const char *asked);

/* 404: there is no such model. */
void model_names_unknown(struct problem *p, const char *model);

#endif
