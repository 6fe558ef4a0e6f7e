/* Merged metrics; see merge.h. */
#include "metrics/merge.h"

#include <stdlib.h>
#include <string.h>

struct metrics_family {
    char name[128];
    struct strbuf head;    /* # HELP and # TYPE of the first process that has it */
    struct strbuf samples; /* lines */
};

void metrics_merge_init(struct metrics_merge *m)
{
    *m = (struct metrics_merge){0};
}

void metrics_merge_fini(struct metrics_merge *m)
{
    for (size_t i = 0; i < m->count; i++) {
        strbuf_fini(&m->families[i].head);
        strbuf_fini(&m->families[i].samples);
    }
    free(m->families);
}

static struct metrics_family *add_family(struct metrics_merge *m, const char *name, size_t len)
{
    if (m->count == m->capacity) {
        size_t more = m->capacity ? m->capacity * 2 : 64;
        struct metrics_family *grown = realloc(m->families, more * sizeof *grown);
        if (!grown) {
            m->failed = true;
            return NULL;
        }
        m->families = grown;
        m->capacity = more;
    }
    struct metrics_family *f = &m->families[m->count++];
    memset(f, 0, sizeof *f);
    memcpy(f->name, name, len);
    strbuf_init(&f->head);
    strbuf_init(&f->samples);
    return f;
}

static struct metrics_family *family(struct metrics_merge *m, const char *name, size_t len)
{
    if (len >= sizeof m->families->name)
        return NULL;
    for (size_t i = 0; i < m->count; i++)
        if (strlen(m->families[i].name) == len && memcmp(m->families[i].name, name, len) == 0)
            return &m->families[i];
    return add_family(m, name, len);
}

/* NAME VALUE, or NAME{LABELS} VALUE. */
static void add_sample(struct metrics_family *f, const char *line, size_t len, const char *labels)
{
    size_t name = strcspn(line, "{ \n");
    strbuf_append(&f->samples, line, name);
    strbuf_printf(&f->samples, "{%s", labels);
    bool labelled = line[name] == '{';
    if (labelled)
        strbuf_printf(&f->samples, ",");
    else
        strbuf_printf(&f->samples, "}");
    size_t rest = name + labelled;
    strbuf_append(&f->samples, line + rest, len - rest);
    strbuf_printf(&f->samples, "\n");
}

void metrics_merge_add(struct metrics_merge *m, const char *text, const char *labels)
{
    struct metrics_family *current = NULL;
    bool new_head = false;
    for (const char *line = text; *line;) {
        size_t len = strcspn(line, "\n");
        if (strncmp(line, "# HELP ", 7) == 0) {
            const char *name = line + 7;
            current = family(m, name, strcspn(name, " \n"));
            new_head = current && !current->head.len;
        }
        if (current && *line == '#' && new_head) {
            strbuf_append(&current->head, line, len);
            strbuf_printf(&current->head, "\n");
        } else if (current && len && *line != '#') {
            add_sample(current, line, len, labels);
        }
        line += len + (line[len] == '\n');
    }
}

void metrics_merge_write(const struct metrics_merge *m, struct strbuf *out)
{
    out->failed = out->failed || m->failed;
    for (size_t i = 0; i < m->count; i++) {
        const struct metrics_family *f = &m->families[i];
        out->failed = out->failed || f->head.failed || f->samples.failed;
        if (out->failed)
            return;
        strbuf_append(out, f->head.data, f->head.len);
        if (f->samples.len)
            strbuf_append(out, f->samples.data, f->samples.len);
    }
}
