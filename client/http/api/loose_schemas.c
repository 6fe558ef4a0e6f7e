/* See loose_schemas.h. */
#include "client/http/api/loose_schemas.h"

#include "base/checksum.h"
#include "grammar/grammar.h"
#include "grammar/schema_loosen.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* NULL: no memory. */
static char *loosen(const char *text, char keyword[SCHEMA_KEYWORD_BYTES])
{
    json_t *schema = json_loads(text, JSON_ALLOW_NUL | JSON_DECODE_ANY, NULL);
    *keyword = '\0';
    if (!schema)
        return NULL;
    schema_loosen(schema, &grammar_limits_default, NULL, keyword);
    char *loose = json_dumps(schema, JSON_COMPACT | JSON_ENCODE_ANY);
    json_decref(schema);
    return loose;
}

static struct loose_schema *find(struct loose_schemas *all, const char *text, uint64_t hash)
{
    for (unsigned i = 0; i < LOOSE_SCHEMAS; i++) {
        struct loose_schema *s = &all->items[i];
        if (s->text && s->hash == hash && strcmp(s->text, text) == 0)
            return s;
    }
    return NULL;
}

static void drop(struct loose_schema *s)
{
    free(s->text);
    free(s->loose);
    *s = (struct loose_schema){0};
}

static void keep(struct loose_schemas *all, const char *text, uint64_t hash, const char *loose,
                 const char *keyword)
{
    struct loose_schema *s = &all->items[all->next++ % LOOSE_SCHEMAS];
    drop(s);
    *s = (struct loose_schema){.hash = hash, .text = strdup(text), .loose = strdup(loose)};
    memcpy(s->keyword, keyword, sizeof s->keyword);
    if (!s->text || !s->loose)
        drop(s);
}

static void apply(struct ask *ask, char *loose, const char *keyword)
{
    char name[SCHEMA_KEYWORD_BYTES + sizeof "schema:"];
    if (!loose)
        return;
    free(ask->form_text);
    ask->form_text = loose;
    snprintf(name, sizeof name, "schema:%s", keyword);
    if (*keyword)
        ask_ignore(ask, name);
}

void loose_schemas_apply(struct loose_schemas *all, struct ask *ask)
{
    char keyword[SCHEMA_KEYWORD_BYTES];
    size_t bytes = strlen(ask->form_text);
    uint64_t hash = checksum64(0, ask->form_text, bytes);
    const struct loose_schema *known = find(all, ask->form_text, hash);
    if (known) {
        apply(ask, strdup(known->loose), known->keyword);
        return;
    }
    char *loose = loosen(ask->form_text, keyword);
    if (loose && bytes <= LOOSE_SCHEMA_BYTES)
        keep(all, ask->form_text, hash, loose, keyword);
    apply(ask, loose, keyword);
}

void loose_schemas_fini(struct loose_schemas *all)
{
    for (unsigned i = 0; i < LOOSE_SCHEMAS; i++)
        drop(&all->items[i]);
}
