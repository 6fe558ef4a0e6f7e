/* Templates and their variants. See chat_template.h. */
#include "chat/internal.h"
#include "chat/message.h"

#include "base/json_space.h"

#include <stdlib.h>
#include <string.h>

/* For a model without a template: base models continue such a dialogue. */
static const char plain_template[] =
    "{% for message in messages %}"
    "{{ message.role | capitalize }}: {{ message.content | trim }}\n\n"
    "{% endfor %}{% if add_generation_prompt %}Assistant:{% endif %}";

/* ---- Variants ---- */

static void variant_fini(struct chat_variant *v)
{
    jinja_free(v->jinja);
    free(v->source);
}

/* Takes the source, which is allocated; NULL: no memory. */
static enum error_code variant_init(struct chat_variant *v, char *source, const json_t *trusted,
                                    struct error *e)
{
    *v = (struct chat_variant){.source = source};
    enum error_code code = source ? jinja_compile(source, strlen(source), &v->jinja, e)
                                  : error_set(e, ERROR_MEMORY, "no memory for a chat template");
    if (source && code)
        error_prefix(e, "the chat template is not usable");
    if (!code && !chat_probe(v, trusted))
        code = error_set(e, ERROR_MEMORY, "no memory for a chat template");
    if (code) {
        variant_fini(v);
        *v = (struct chat_variant){0};
    }
    return code;
}

/* Puts `calls` in front of a template that shows tools but no calls, if it shows them then. */
static enum error_code add_calls(struct chat_variant *v, const char *calls, const json_t *trusted,
                                 struct error *e)
{
    if (!calls || !v->abilities.tools || v->abilities.tool_calls)
        return ERROR_OK;
    char *both = malloc(strlen(calls) + strlen(v->source) + 1);
    if (both)
        strcpy(stpcpy(both, calls), v->source);
    struct chat_variant with;
    enum error_code code = variant_init(&with, both, trusted, e);
    if (code)
        return code;
    struct chat_variant unused = with.abilities.tool_calls ? *v : with;
    if (with.abilities.tool_calls)
        *v = with;
    variant_fini(&unused);
    return ERROR_OK;
}

static enum error_code variant_new(struct chat_variant *v, const char *text,
                                   const struct chat_source *source, const json_t *trusted,
                                   struct error *e)
{
    enum error_code code = variant_init(v, strdup(text), trusted, e);
    return code ? code : add_calls(v, source->calls, trusted, e);
}

enum error_code chat_template_new(const struct chat_source *source, struct chat_template **out,
                                  struct error *e)
{
    struct chat_template *t = calloc(1, sizeof *t);
    if (!t)
        return error_set(e, ERROR_MEMORY, "no memory for a chat template");
    t->plain = !source->text || !*source->text;
    t->trusted = json_pack("{s:s, s:s}", "bos_token", source->bos ? source->bos : "", "eos_token",
                           source->eos ? source->eos : "");
    enum error_code code = ERROR_OK;
    if (!t->trusted)
        code = error_set(e, ERROR_FORMAT, "the texts of the model's end tokens are not UTF-8");
    if (!code)
        code =
            variant_new(&t->basic, t->plain ? plain_template : source->text, source, t->trusted, e);
    if (!code && !t->plain && source->tools && *source->tools)
        code = variant_new(&t->tools, source->tools, source, t->trusted, e);
    if (code) {
        chat_template_free(t);
        return code;
    }
    *out = t;
    return ERROR_OK;
}

void chat_template_free(struct chat_template *t)
{
    if (!t)
        return;
    variant_fini(&t->basic);
    variant_fini(&t->tools);
    json_decref(t->trusted);
    free(t);
}

bool chat_template_is_plain(const struct chat_template *t)
{
    return t->plain;
}

const struct chat_abilities *chat_template_abilities(const struct chat_template *t, bool tools)
{
    return &chat_choose_variant(t, tools)->abilities;
}
