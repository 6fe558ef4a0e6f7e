/* Models of a folder; see catalogue.h. */
#include "deploy/models/catalogue.h"

#include "base/log.h"
#include "daemon/options.h"
#include "daemon/options_file.h"
#include "gguf/gguf.h"
#include "model/memory_need.h"
#include "model/tier_plan.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define SUFFIX ".gguf"

/* ---- Names ---- */

/* "x" for "x.gguf" and for "x-00001-of-00003.gguf". False: it is no model's first file. */
static bool id_of_file(const char *file, char id[CATALOGUE_ID_BYTES])
{
    size_t len = strlen(file), end = strlen(SUFFIX);
    unsigned part = 0, parts = 0;
    int n = 0;
    if (len <= end || strcmp(file + len - end, SUFFIX) != 0 || file[0] == '.')
        return false;
    len -= end;
    const char *dash = len > 15 ? file + len - 15 : NULL;
    if (dash && sscanf(dash, "-%5u-of-%5u%n", &part, &parts, &n) == 2 && n == 15) {
        if (part != 1)
            return false;
        len -= 15;
    }
    if (len >= CATALOGUE_ID_BYTES)
        return false;
    snprintf(id, CATALOGUE_ID_BYTES, "%.*s", (int)len, file);
    for (const char *c = id; *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            return false;
    return true;
}

static uint32_t hash_of(const char *text)
{
    uint32_t hash = 2166136261u; /* FNV-1a */
    for (; *text; text++)
        hash = (hash ^ (unsigned char)*text) * 16777619u;
    return hash;
}

/* The id where it can be a deployment's name; else what is left of it, with a hash. */
static void name_of_id(const char *id, char name[CATALOGUE_NAME_BYTES])
{
    char plain[CATALOGUE_ID_BYTES];
    bool same = strlen(id) < CATALOGUE_NAME_BYTES;
    size_t n = 0;
    for (const char *c = id; *c; c++, n++) {
        bool fine = isalnum((unsigned char)*c) || *c == '_' || *c == '-' || (*c == '.' && n);
        plain[n] = fine ? *c : '_';
        same = same && fine;
    }
    plain[n] = '\0';
    if (same)
        snprintf(name, CATALOGUE_NAME_BYTES, "%s", plain);
    else
        snprintf(name, CATALOGUE_NAME_BYTES, "%.23s-%08x", plain, hash_of(id));
}

/* ---- Files ---- */

struct catalogue_refused {
    char *path;
    struct timespec modified;
};

static bool same_time(const struct timespec *a, const struct timespec *b)
{
    return a->tv_sec == b->tv_sec && a->tv_nsec == b->tv_nsec;
}

static struct catalogue_refused *find_refused(const struct catalogue *c, const char *path)
{
    for (size_t i = 0; i < c->refused_count; i++)
        if (strcmp(c->refused[i].path, path) == 0)
            return &c->refused[i];
    return NULL;
}

static bool is_refused(const struct catalogue *c, const char *path, const struct stat *s)
{
    const struct catalogue_refused *known = find_refused(c, path);
    return known && same_time(&known->modified, &s->st_mtim);
}

/* Says so once for each version of the file. */
static void refuse(struct catalogue *c, const char *path, const struct stat *s, const char *why)
{
    struct catalogue_refused *known = find_refused(c, path);
    log_warn("%s is left out: %s", path, why);
    if (!known) {
        struct catalogue_refused *grown =
            realloc(c->refused, (c->refused_count + 1) * sizeof *grown);
        char *copy = strdup(path);
        c->refused = grown ? grown : c->refused;
        if (!grown || !copy) {
            free(copy);
            return;
        }
        known = &c->refused[c->refused_count++];
        known->path = copy;
    }
    known->modified = s->st_mtim;
}

/* When the file with a deployment's options was written; 0: there is none. */
static struct timespec find_options(const char *deployment, char path[PATH_MAX])
{
    struct stat s;
    bool found = options_file_find(deployment, path) && stat(path, &s) == 0;
    return found ? s.st_mtim : (struct timespec){0};
}

/* Host memory that `moed up` will want for the model. */
static uint64_t need_bytes(struct pool_plan *plan, struct catalogue_entry *x)
{
    const char *ram = NULL;
    const struct option_spec options[] = {{"ram", OPTION_STRING, &ram, 0, 0, "SIZE", ""}, {0}};
    struct tier_plan tier;
    struct error e;
    char path[PATH_MAX];
    x->options_modified = find_options(x->deployment, path);
    if ((x->options_modified.tv_sec && options_read_some(options, path, &e)) ||
        tier_plan_new(plan, ram, &tier, &e))
        return 0;
    if (tier.n_slots)
        pool_plan_keep_dense(plan);
    return memory_need_bytes(plan, tier.bytes + tier.read_bytes);
}

static enum error_code read_model(const char *path, struct catalogue_entry *x, struct error *e)
{
    struct gguf *g;
    struct pool_plan plan = {0};
    enum error_code code = gguf_open(path, &g, e);
    if (code)
        return code;
    code = pool_plan_new(g, &plan, e);
    if (!code) {
        const struct model_params *p = &plan.header.params;
        snprintf(x->architecture, sizeof x->architecture, "%s", plan.header.arch);
        snprintf(x->name, sizeof x->name, "%s", p->name);
        x->context = p->context_trained;
        x->parameters = plan.header.parameters;
        x->file_bytes = plan.header.file_bytes;
        x->weights_bytes = plan.header.bytes;
        x->need_bytes = need_bytes(&plan, x);
        pool_plan_free(&plan);
    }
    gguf_close(g);
    return code;
}

static struct catalogue_entry *with_id(struct catalogue *c, const char *id)
{
    for (size_t i = 0; i < c->count; i++)
        if (strcmp(c->entries[i].id, id) == 0)
            return &c->entries[i];
    return NULL;
}

static bool is_unchanged(const struct catalogue_entry *x, const char *path, const struct stat *s)
{
    char options[PATH_MAX];
    struct timespec written = find_options(x->deployment, options);
    return strcmp(x->path, path) == 0 && x->first_bytes == (uint64_t)s->st_size &&
           same_time(&x->modified, &s->st_mtim) && same_time(&x->options_modified, &written);
}

/* The file is the model `id`, new or changed. */
static void take_model(struct catalogue *c, const char *id, const char *path, const struct stat *s)
{
    struct catalogue_entry fresh = {.modified = s->st_mtim, .first_bytes = (uint64_t)s->st_size};
    struct catalogue_entry *known = with_id(c, id);
    struct error e = {0};
    if (is_refused(c, path, s))
        return;
    snprintf(fresh.id, sizeof fresh.id, "%s", id);
    name_of_id(id, fresh.deployment);
    const char *why = known && known->seen                   ? "another file has its name"
                      : !known && c->count == CATALOGUE_MOST ? "the folder has too many models"
                      : read_model(path, &fresh, &e)         ? e.text
                                                             : NULL;
    if (why) {
        refuse(c, path, s, why);
        return;
    }
    fresh.path = strdup(path);
    fresh.seen = true;
    if (!fresh.path)
        return;
    if (!known)
        known = &c->entries[c->count++];
    else
        free(known->path);
    *known = fresh;
}

static void take_file(struct catalogue *c, const char *path, const char *file)
{
    char id[CATALOGUE_ID_BYTES];
    struct stat s;
    if (!id_of_file(file, id) || stat(path, &s) != 0 || !S_ISREG(s.st_mode))
        return;
    if (time(NULL) - s.st_mtim.tv_sec < CATALOGUE_SETTLE_S && time(NULL) >= s.st_mtim.tv_sec)
        return;
    struct catalogue_entry *known = with_id(c, id);
    if (known && !known->seen && is_unchanged(known, path, &s))
        known->seen = true;
    else
        take_model(c, id, path, &s);
}

static enum error_code scan_folder(struct catalogue *c, const char *folder, unsigned depth,
                                   struct error *e)
{
    struct dirent **names;
    int n = scandir(folder, &names, NULL, alphasort); /* in order: which of two wins is fixed */
    if (n < 0)
        return error_set(e, ERROR_IO, "cannot read the folder %s: %m", folder);
    for (int i = 0; i < n; i++) {
        char path[PATH_MAX];
        struct stat s;
        int len = snprintf(path, sizeof path, "%s/%s", folder, names[i]->d_name);
        if (names[i]->d_name[0] != '.' && len < (int)sizeof path && stat(path, &s) == 0) {
            if (S_ISDIR(s.st_mode) && depth > 0)
                scan_folder(c, path, depth - 1, &(struct error){0}); /* one that cannot be read */
            else
                take_file(c, path, names[i]->d_name);
        }
        free(names[i]);
    }
    free(names);
    return ERROR_OK;
}

static void drop_unseen(struct catalogue *c)
{
    size_t kept = 0;
    for (size_t i = 0; i < c->count; i++) {
        if (c->entries[i].seen)
            c->entries[kept++] = c->entries[i];
        else
            free(c->entries[i].path);
    }
    c->count = kept;
}

enum error_code catalogue_scan(struct catalogue *c, const char *folder, struct error *e)
{
    for (size_t i = 0; i < c->count; i++)
        c->entries[i].seen = false;
    enum error_code code = scan_folder(c, folder, 1, e);
    if (!code)
        drop_unseen(c);
    return code;
}

void catalogue_fini(struct catalogue *c)
{
    for (size_t i = 0; i < c->count; i++)
        free(c->entries[i].path);
    for (size_t i = 0; i < c->refused_count; i++)
        free(c->refused[i].path);
    free(c->refused);
    *c = (struct catalogue){.count = 0};
}

static bool same_name(const char *name, const char *asked)
{
    size_t n = strlen(name);
    return n && strncmp(name, asked, n) == 0 && (!asked[n] || strcmp(asked + n, ":latest") == 0);
}

const struct catalogue_entry *catalogue_find(const struct catalogue *c, const char *name)
{
    for (size_t i = 0; i < c->count; i++)
        if (same_name(c->entries[i].id, name) || same_name(c->entries[i].deployment, name))
            return &c->entries[i];
    return NULL;
}
