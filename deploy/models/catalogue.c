/* Models of a folder; see catalogue.h. */
#include "deploy/models/catalogue.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/quantity.h"
#include "base/same_file.h"
#include "daemon/options.h"
#include "daemon/options_file.h"
#include "daemon/supervisor_protocol.h"
#include "device/batch_plan.h"
#include "gguf/file_type.h"
#include "ipc/kv_pool.h"
#include "model/kv_layout.h"
#include "exec/pool.h"
#include "model/memory_need.h"
#include "model/serving_limits.h"
#include "model/tier_plan.h"
#include "reader/model_reader.h"

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

/* The id where it can be a deployment's name; else what is left of it, with a hash. No name begins
 * with a dash: `moed down` would take it for an option. */
static void name_of_id(const char *id, char name[CATALOGUE_NAME_BYTES])
{
    char plain[CATALOGUE_ID_BYTES];
    bool same = strlen(id) < CATALOGUE_NAME_BYTES;
    size_t n = 0;
    for (const char *c = id; *c; c++, n++) {
        bool fine = isalnum((unsigned char)*c) || *c == '_' || (n && (*c == '-' || *c == '.'));
        plain[n] = fine ? *c : '_';
        same = same && fine;
    }
    plain[n] = '\0';
    if (same)
        memcpy(name, plain, n + 1);
    else
        snprintf(name, CATALOGUE_NAME_BYTES, "%.23s-%08x", plain, hash_of(id));
}

/* ---- Files ---- */

struct catalogue_refused {
    char *path;
    struct catalogue_version version;
    bool retries;        /* it may be listed without a change of its files */
    uint32_t late, next; /* how often its time or memory was over; the scan that reads it again */
    uint32_t scan;       /* the last that found the file */
    char why[256];       /* empty: it was listed since */
};

/* A file of models, as a scan finds it. */
struct catalogue_file {
    char *path; /* owned */
    char id[CATALOGUE_ID_BYTES];
    struct catalogue_version version;
    size_t order; /* of finding */
};

static bool same_time(const struct timespec *a, const struct timespec *b)
{
    return a->tv_sec == b->tv_sec && a->tv_nsec == b->tv_nsec;
}

bool catalogue_same_version(const struct catalogue_version *a, const struct catalogue_version *b)
{
    return a->files == b->files && a->bytes == b->bytes && same_time(&a->newest, &b->newest);
}

static void add_file(struct catalogue_version *v, const char *path)
{
    struct stat s;
    if (stat(path, &s) != 0 || !S_ISREG(s.st_mode))
        return;
    if (s.st_mtim.tv_sec > v->newest.tv_sec ||
        (s.st_mtim.tv_sec == v->newest.tv_sec && s.st_mtim.tv_nsec > v->newest.tv_nsec))
        v->newest = s.st_mtim;
    v->bytes += (uint64_t)s.st_size;
    v->files++;
}

/* Of the files that are there. False: the first is not. */
static bool find_version(const char *path, struct catalogue_version *out)
{
    uint32_t parts = gguf_count_parts(path);
    *out = (struct catalogue_version){0};
    add_file(out, path);
    if (!out->files)
        return false;
    for (uint32_t i = 1; i < parts; i++) {
        char *part = gguf_part_path(path, i, parts);
        if (part)
            add_file(out, part);
        free(part);
    }
    return true;
}

static struct catalogue_refused *find_refused(const struct catalogue *c, const char *path)
{
    for (size_t i = 0; i < c->refused_count; i++)
        if (strcmp(c->refused[i].path, path) == 0)
            return &c->refused[i];
    return NULL;
}

static struct catalogue_refused *add_refused(struct catalogue *c, const char *path)
{
    struct catalogue_refused *grown = realloc(c->refused, (c->refused_count + 1) * sizeof *grown);
    char *copy = strdup(path);
    c->refused = grown ? grown : c->refused;
    if (!grown || !copy) {
        free(copy);
        return NULL;
    }
    grown[c->refused_count] = (struct catalogue_refused){.path = copy};
    return &grown[c->refused_count++];
}

/* Says so once for each version of the files. A file whose time or memory was over leaves more
 * and more scans to the others. */
static void refuse(struct catalogue *c, const char *path, const struct catalogue_version *v,
                   bool retries, enum error_code code, const char *why)
{
    struct catalogue_refused *known = find_refused(c, path);
    if (!known || !catalogue_same_version(&known->version, v) || (known->retries && !retries))
        log_warn("%s is left out%s: %s", path, retries ? " for now" : "", why);
    if (!known)
        known = add_refused(c, path);
    if (!known)
        return;
    uint32_t late = code == ERROR_TIMEOUT || code == ERROR_MEMORY ? known->late + 1 : 0;
    *known = (struct catalogue_refused){.path = known->path,
                                        .version = *v,
                                        .retries = retries,
                                        .late = late,
                                        .next = c->scans + 1 + late,
                                        .scan = c->scans};
    snprintf(known->why, sizeof known->why, "%s", why);
}

bool catalogue_options_file(const char *id, const char *deployment, char path[PATH_MAX])
{
    if (options_file_find(id, path) || options_file_find(deployment, path))
        return true;
    options_file_find(id, path);
    return false;
}

/* When the file with a model's options was written; 0: there is none. */
static struct timespec find_options(const struct catalogue_entry *x, char path[PATH_MAX])
{
    struct stat s;
    bool found = catalogue_options_file(x->id, x->deployment, path) && stat(path, &s) == 0;
    return found ? s.st_mtim : (struct timespec){0};
}

bool catalogue_options_changed(const struct catalogue_entry *x)
{
    char path[PATH_MAX];
    struct timespec now = find_options(x, path);
    return !same_time(&x->options_modified, &now);
}

/* What a deployment's options say about memory. */
struct memory_options {
    const char *device, *ram, *kv_type, *kv_cache;
    uint64_t context, parallel, batch, workers, threads;
    bool reproducible, cpuexec;
};

static enum error_code read_options(const char *defaults, struct catalogue_entry *x,
                                    struct memory_options *m, struct error *e)
{
    char path[PATH_MAX];
    const struct option_spec options[] = {
        {"device", OPTION_STRING, &m->device, 0, 0, "DEVICE", ""},
        {"ram", OPTION_STRING, &m->ram, 0, 0, "SIZE", ""},
        {"kv-type", OPTION_STRING, &m->kv_type, 0, 0, "TYPE", ""},
        {"kv-cache", OPTION_STRING, &m->kv_cache, 0, 0, "SIZE", ""},
        {"ctx", OPTION_UINT, &m->context, 0, 1 << 24, "N", ""},
        {"parallel", OPTION_UINT, &m->parallel, 0, 256, "N", ""},
        {"batch", OPTION_UINT, &m->batch, 0, BATCH_MOST, "N", ""},
        {"workers", OPTION_UINT, &m->workers, 0, SUPERVISE_WORKERS, "N", ""},
        {"threads", OPTION_UINT, &m->threads, 0, 1024, "N", ""},
        {"reproducible", OPTION_BOOL, &m->reproducible, 0, 0, NULL, ""},
        {"cpuexec", OPTION_BOOL, &m->cpuexec, 0, 0, NULL, ""},
        {0}};
    x->options_modified = find_options(x, path);
    enum error_code code = defaults ? options_read_some(options, defaults, e) : ERROR_OK;
    if (!code && x->options_modified.tv_sec)
        code = options_read_some(options, path, e);
    return code;
}

/* Bytes of a KV cache that holds a request of so many tokens. */
static uint64_t kv_bytes(const struct kv_layout *kv, uint32_t tokens, uint32_t batch)
{
    uint64_t pages = kv_layout_pages(kv, tokens, batch);
    return kv_pool_bytes(pages < UINT32_MAX ? (uint32_t)pages : UINT32_MAX, kv->page_bytes);
}

/* The least is a request of a whole context, but not more than KV_TOKENS that nobody asked for. The
 * most is the whole contexts of all requests at once, within a part of the weights. */
static enum error_code find_kv(const struct model_params *p, uint64_t weights,
                               const struct memory_options *m, struct catalogue_entry *x,
                               struct error *e)
{
    enum { KV_TOKENS = 4096, KV_PART = 4 };
    const uint64_t always = 256ull << 20;
    struct kv_layout kv;
    enum tensor_type type;
    uint64_t given;
    enum error_code code = kv_type_parse(m->kv_type, &type, e);
    if (!code)
        code = kv_type_check(p, type, e);
    if (code)
        return code;
    x->kv_given = m->kv_cache != NULL;
    if (x->kv_given) {
        if (quantity_parse_size(m->kv_cache, strlen(m->kv_cache), &given))
            x->kv_least_bytes = x->kv_most_bytes = given;
        return ERROR_OK;
    }
    kv_layout_make(p, type, &kv);
    uint32_t parallel = memory_parallel(p, m->parallel);
    uint32_t batch =
        serving_batch_tokens(m->batch ? (uint32_t)m->batch : BATCH_IN_MEMORY, parallel);
    uint32_t context = serving_context(p, (uint32_t)m->context, UINT32_MAX, false);
    bool whole = m->context || context < KV_TOKENS;
    uint64_t one = kv_bytes(&kv, context, batch), part = weights / KV_PART;
    x->kv_least_bytes = whole ? one : kv_bytes(&kv, KV_TOKENS, batch);
    x->kv_most_bytes = part > always ? part : always;
    if (x->kv_most_bytes / parallel > one)
        x->kv_most_bytes = parallel * one;
    if (x->kv_most_bytes < x->kv_least_bytes)
        x->kv_most_bytes = x->kv_least_bytes;
    return ERROR_OK;
}

/* A device that memd will refuse counts as none. */
static struct memory_worker worker_of(const struct memory_options *m, const struct model_params *p)
{
    struct device_spec s = {.kind = DEVICE_HOST};
    if (device_parse(m->device, &s, NULL))
        s.kind = DEVICE_HOST;
    return (struct memory_worker){
        .batch = batch_plan_known(&s, p, (uint32_t)m->batch, (uint32_t)m->context),
        .cpuexec = m->cpuexec || s.kind != DEVICE_HOST,
        .parallel = (uint32_t)m->parallel,
        .workers = (uint32_t)m->workers,
        .threads = pool_useful_threads((unsigned)m->threads),
        .reproducible = m->reproducible};
}

/* Host memory that `moed up` will want for the model. */
static void find_needs(struct pool_plan *plan, const char *defaults, struct catalogue_entry *x)
{
    struct memory_options m = {.device = "host", .kv_type = KV_TYPE_DEFAULT};
    const struct model_params *p = &plan->header.params;
    struct tier_plan tier;
    struct error e;
    uint64_t weights = plan->header.bytes;
    if (read_options(defaults, x, &m, &e) || tier_plan_new(plan, m.ram, &tier, &e) ||
        find_kv(p, weights, &m, x, &e))
        return;
    if (tier.n_slots)
        pool_plan_keep_dense(plan);
    /* memory_need_bytes counts the states of one request */
    const struct memory_worker worker = worker_of(&m, p);
    x->need_bytes = memory_need_bytes(plan, tier.bytes + tier.read_bytes, &worker) +
                    memory_state_bytes(p, memory_parallel(p, m.parallel)) -
                    memory_state_bytes(p, 1);
}

static enum error_code read_model(const struct catalogue *c, const char *path,
                                  struct catalogue_entry *x, struct error *e)
{
    struct read_model model;
    enum error_code code = model_reader_describe(path, c->until_ns, &model, e);
    if (code)
        return code;
    const struct model_params *p = &model.plan.header.params;
    snprintf(x->architecture, sizeof x->architecture, "%s", model.plan.header.arch);
    snprintf(x->name, sizeof x->name, "%s", p->name);
    snprintf(x->quantization, sizeof x->quantization, "%s",
             gguf_quantization(model.gguf, model.file_type));
    x->fills = model.fills;
    x->context = p->context_trained;
    x->parameters = model.plan.header.parameters;
    x->file_bytes = model.plan.header.file_bytes;
    x->weights_bytes = model.plan.header.bytes;
    find_needs(&model.plan, c->defaults, x);
    read_model_free(&model);
    return ERROR_OK;
}

static struct catalogue_entry *with_id(struct catalogue *c, const char *id)
{
    for (size_t i = 0; i < c->count; i++)
        if (strcmp(c->entries[i].id, id) == 0)
            return &c->entries[i];
    return NULL;
}

static bool is_unchanged(const struct catalogue_entry *x, const char *path,
                         const struct catalogue_version *v)
{
    return strcmp(x->path, path) == 0 && catalogue_same_version(&x->version, v) &&
           !catalogue_options_changed(x);
}

/* The file itself is the reason, not the machine's state. */
static bool is_of_file(enum error_code code)
{
    return code == ERROR_FORMAT || code == ERROR_UNSUPPORTED || code == ERROR_LIMIT ||
           code == ERROR_NOT_FOUND;
}

/* The file is the model `id`, new or changed. */
static void take_model(struct catalogue *c, const char *id, const char *path,
                       const struct catalogue_version *v)
{
    struct catalogue_entry fresh = {.version = *v};
    struct catalogue_entry *known = with_id(c, id);
    struct error e = {0};
    snprintf(fresh.id, sizeof fresh.id, "%s", id);
    name_of_id(id, fresh.deployment);
    if (known && known->seen) {
        char why[256];
        snprintf(why, sizeof why, "a newer file has its name: %.200s", known->path);
        refuse(c, path, v, true, ERROR_EXISTS, why);
        return;
    }
    if (!known && c->count == CATALOGUE_MOST) {
        refuse(c, path, v, true, ERROR_LIMIT, "the folder has too many models");
        return;
    }
    enum error_code code = read_model(c, path, &fresh, &e);
    if (code) {
        refuse(c, path, v, !is_of_file(code), code, e.text);
        if (known)
            known->seen = !is_of_file(code); /* as it was */
        return;
    }
    struct catalogue_refused *refused = find_refused(c, path);
    if (refused)
        refused->why[0] = '\0';
    fresh.path = strdup(path);
    fresh.seen = true;
    if (known)
        known->seen = true;
    if (!fresh.path)
        return;
    if (!known)
        known = &c->entries[c->count++];
    else
        free(known->path);
    *known = fresh;
}

static bool is_settled(const struct catalogue_version *v)
{
    time_t now = time(NULL);
    return now < v->newest.tv_sec || now - v->newest.tv_sec >= CATALOGUE_SETTLE_S;
}

static void take_file(struct catalogue *c, const char *path, const char *id,
                      const struct catalogue_version *v)
{
    struct catalogue_entry *known = with_id(c, id);
    if (!is_settled(v) || (known && known->seen && same_file(known->path, path)))
        return;
    struct catalogue_refused *refused = find_refused(c, path);
    if (refused)
        refused->scan = c->scans;
    if (refused && !catalogue_same_version(&refused->version, v))
        refused = NULL;
    if (known && !known->seen && is_unchanged(known, path, v))
        known->seen = true;
    else if (refused && !refused->retries)
        return;
    else if ((!refused || c->scans >= refused->next) && clock_ns() < c->until_ns)
        take_model(c, id, path, v);
    else if (known)
        known->seen = true; /* as it was, until a scan has the time */
}

/* ---- Files of one name ---- */

static void note_file(struct catalogue *c, const char *path, const char *file)
{
    struct catalogue_file found = {.order = c->found_count};
    if (!id_of_file(file, found.id) || !find_version(path, &found.version))
        return;
    c->files++;
    if (c->found_count == c->found_capacity) {
        size_t capacity = 2 * c->found_capacity + 64;
        struct catalogue_file *grown = realloc(c->found, capacity * sizeof *grown);
        if (!grown)
            return; /* the next scan may have the memory */
        c->found = grown;
        c->found_capacity = capacity;
    }
    found.path = strdup(path);
    if (found.path)
        c->found[c->found_count++] = found;
}

/* By name, the newest first, so that it is taken where moed can serve it. */
static int compare_files(const void *a, const void *b)
{
    const struct catalogue_file *x = a, *y = b;
    const struct timespec *s = &x->version.newest, *t = &y->version.newest;
    int by_id = strcmp(x->id, y->id);
    if (by_id)
        return by_id;
    if (s->tv_sec != t->tv_sec)
        return s->tv_sec > t->tv_sec ? -1 : 1;
    if (s->tv_nsec != t->tv_nsec)
        return s->tv_nsec > t->tv_nsec ? -1 : 1;
    return x->order < y->order ? -1 : 1;
}

static void take_found(struct catalogue *c)
{
    if (c->found_count)
        qsort(c->found, c->found_count, sizeof *c->found, compare_files);
    for (size_t i = 0; i < c->found_count; i++) {
        take_file(c, c->found[i].path, c->found[i].id, &c->found[i].version);
        free(c->found[i].path);
    }
    free(c->found);
    c->found = NULL;
    c->found_count = c->found_capacity = 0;
}

/* ---- Folders ---- */

/* A folder and those that it is in, for links that lead back to one of them. */
struct folder {
    const char *path;
    const struct folder *parent;
    unsigned level;
    dev_t device;
    ino_t inode;
};

static bool leads_back(const struct folder *f)
{
    for (const struct folder *p = f->parent; p; p = p->parent)
        if (p->device == f->device && p->inode == f->inode)
            return true;
    return false;
}

static bool is_folder(const char *path, const struct dirent *d)
{
    struct stat s;
    if (d->d_type != DT_LNK && d->d_type != DT_UNKNOWN)
        return d->d_type == DT_DIR;
    return stat(path, &s) == 0 && S_ISDIR(s.st_mode);
}

static enum error_code scan_folder(struct catalogue *c, struct folder *f, struct error *e);

/* False: it is hidden, or the path is too long. */
static bool path_in(const struct folder *f, const struct dirent *d, char path[PATH_MAX])
{
    return d->d_name[0] != '.' && snprintf(path, PATH_MAX, "%s/%s", f->path, d->d_name) < PATH_MAX;
}

/* The files first, then the folders, which move to the front of the names. */
static void scan_entries(struct catalogue *c, const struct folder *f, struct dirent **names, int n)
{
    int folders = 0;
    char path[PATH_MAX];
    for (int i = 0; i < n; i++) {
        struct dirent *d = names[i];
        if (!path_in(f, d, path))
            continue;
        if (!is_folder(path, d)) {
            note_file(c, path, d->d_name);
            continue;
        }
        names[i] = names[folders];
        names[folders++] = d;
    }
    struct folder in = {.path = path, .parent = f, .level = f->level + 1};
    for (int i = 0; i < folders && in.level <= CATALOGUE_LEVELS; i++)
        if (path_in(f, names[i], path))
            scan_folder(c, &in, &(struct error){0}); /* one that cannot be read */
}

static enum error_code scan_folder(struct catalogue *c, struct folder *f, struct error *e)
{
    struct dirent **names;
    struct stat s;
    if (stat(f->path, &s) != 0)
        return error_set(e, ERROR_IO, "cannot read the folder %s: %m", f->path);
    f->device = s.st_dev;
    f->inode = s.st_ino;
    if (c->left == 0 || leads_back(f))
        return ERROR_OK;
    int n = scandir(f->path, &names, NULL, alphasort); /* in order: which of two wins is fixed */
    if (n < 0)
        return error_set(e, ERROR_IO, "cannot read the folder %s: %m", f->path);
    uint32_t most = (uint32_t)n < c->left ? (uint32_t)n : c->left;
    c->left -= most;
    c->too_large = c->too_large || most < (uint32_t)n;
    scan_entries(c, f, names, (int)most);
    while (n > 0)
        free(names[--n]);
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
    c->scans++;
    c->until_ns = clock_ns() + CATALOGUE_READ_S * 1000000000ull;
    bool was_too_large = c->too_large;
    c->files = 0;
    c->left = CATALOGUE_ENTRIES;
    c->too_large = false;
    enum error_code code = scan_folder(c, &(struct folder){.path = folder}, e);
    take_found(c);
    if (c->too_large && !was_too_large)
        log_warn("%s has more than %d files and folders: the models among the rest are left out",
                 folder, CATALOGUE_ENTRIES);
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

static bool is_listed(const struct catalogue *c, const char *path)
{
    for (size_t i = 0; i < c->count; i++)
        if (strcmp(c->entries[i].path, path) == 0)
            return true;
    return false;
}

bool catalogue_next_left_out(const struct catalogue *c, size_t *at, struct catalogue_left_out *out)
{
    while (*at < c->refused_count) {
        const struct catalogue_refused *r = &c->refused[(*at)++];
        if (r->scan != c->scans || !r->why[0] || is_listed(c, r->path))
            continue;
        *out = (struct catalogue_left_out){r->path, r->why};
        return true;
    }
    return false;
}

bool catalogue_is_left_out(const struct catalogue_left_out *file, const char *name)
{
    char id[CATALOGUE_ID_BYTES];
    const char *slash = strrchr(file->path, '/');
    return id_of_file(slash ? slash + 1 : file->path, id) && same_name(id, name);
}

const struct catalogue_entry *catalogue_find(const struct catalogue *c, const char *name)
{
    for (size_t i = 0; i < c->count; i++)
        if (same_name(c->entries[i].id, name) || same_name(c->entries[i].deployment, name))
            return &c->entries[i];
    return NULL;
}
