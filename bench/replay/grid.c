/* The grid of the report; see grid.h. */
#include "bench/replay/grid.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NOT_FITTED "no hit rate of this model was found: the generator's defaults"

const struct grid_model grid_models[] = {
    {"demo", NULL, 8, 0.2, 0.3, 0.1, 0.96, "the generator's defaults"},
    {"mixtral", "mixtral", 16, 0.2, 0.3, 0.1, 0.96, NOT_FITTED},
    {"qwen3-30b", "qwen3-30b", 12, 0.66, 0.28, 0.33, 0.96,
     "--fit qwen3-30b-imp: LRU 45 % at 8 experts, 93.3 % at 51 (kekzl/imp 1359)"},
    {"deepseek-v2-lite", "deepseek-v2-lite", 13, 0.2, 0.3, 0.1, 0.96, NOT_FITTED},
    {"gpt-oss-20b", "gpt-oss-20b", 12, 0.2, 0.3, 0.1, 0.96, NOT_FITTED},
    {"qwen3.6-35b", "qwen3.6-35b", 10, 0.13, 0.67, 0, 0.96,
     "--fit qwen3.8-next-imp, of the same architecture: LRU 62 % at 36 % of the experts (kekzl/imp "
     "2061)"},
    {0},
};

/* ---- Traces ---- */

uint32_t grid_sequences(uint32_t batch)
{
    return batch == 1 ? 8 : batch <= 4 ? 16 : batch <= 16 ? 32 : batch;
}

static struct synthesis whole_model(const struct grid_model *m)
{
    struct synthesis s = synthesis_default();
    if (m->like) {
        synthesis_like(m->like, &s);
        return s;
    }
    snprintf(s.model, sizeof s.model, "%s (synthetic)", m->name);
    s.segment_bytes = 79000;
    s.dense_bytes = 3000000;
    return s;
}

/* Fewer layers than the model has, and as much less of the dense weights. */
static void cut_layers(struct synthesis *s, uint32_t n_layers)
{
    uint64_t all = s->n_layers;
    s->n_layers = s->first_layer + n_layers < all ? s->first_layer + n_layers : all;
    s->dense_bytes = s->dense_bytes * s->n_layers / all;
}

struct synthesis grid_synthesis(const struct grid_job *job)
{
    struct synthesis s = whole_model(job->model);
    uint32_t sequences = 0;
    cut_layers(&s, job->model->n_layers);
    for (uint32_t i = 0; i < job->n_batch; i++)
        if (grid_sequences(job->batch[i]) > sequences)
            sequences = grid_sequences(job->batch[i]);
    s.sequence = job->prompt + job->answer;
    s.prompt = job->prompt;
    s.n_tokens = s.sequence * sequences;
    s.seed = job->seed;
    s.skew = job->skew;
    s.locality = job->locality;
    s.predictability = job->predictability;
    s.topic_strength = job->model->topic_strength;
    return s;
}

bool grid_same_trace(const struct grid_job *a, const struct grid_job *b)
{
    return strcmp(a->section, b->section) == 0 && a->model == b->model && a->skew == b->skew &&
           a->locality == b->locality && a->predictability == b->predictability &&
           a->prompt == b->prompt && a->answer == b->answer && a->seed == b->seed;
}

void grid_job_name(const struct grid_job *j, char out[160])
{
    snprintf(out, 160, "%s.%s.%s.l%g.k%g.p%g.%" PRIu32 ".%" PRIu32, j->section, j->model->name,
             j->machine, j->locality, j->skew, j->predictability, j->prompt, j->seed);
}

/* ---- Jobs ---- */

static bool in_list(const char *list, const char *name)
{
    size_t n = strlen(name);
    for (const char *at = list; at && *at; at += strcspn(at, ","), at += *at == ',')
        if (strcspn(at, ",") == n && memcmp(at, name, n) == 0)
            return true;
    return false;
}

/* Shares that the machine's memory holds: of the whole model, with its dense weights. */
static void drop_impossible(struct grid *g, struct grid_job *j, const struct machine *m)
{
    struct synthesis s = whole_model(j->model);
    double experts = (double)((s.n_layers - s.first_layer) * s.n_experts * s.n_segments) *
                     (double)s.segment_bytes;
    bool in_ram = experts + (double)s.dense_bytes <= (double)m->ram_bytes;
    uint32_t n = 0;
    for (uint32_t i = 0; i < j->n_vram; i++)
        if (in_ram && j->vram[i] * experts + (double)s.dense_bytes <= (double)m->vram_bytes)
            j->vram[n++] = j->vram[i];
    g->n_impossible += (j->n_vram - n) * j->n_batch;
    j->n_vram = n;
}

static enum error_code add_job(struct grid *g, const struct grid_job *job, struct error *e)
{
    struct machine machine;
    enum error_code code = machine_find(job->machine, &machine, e);
    if (code)
        return code;
    if (g->n_jobs == g->capacity) {
        uint32_t capacity = 2 * g->capacity + 64;
        struct grid_job *more = realloc(g->jobs, capacity * sizeof *more);
        if (!more)
            return error_set(e, ERROR_MEMORY, "no memory for the grid");
        g->jobs = more;
        g->capacity = capacity;
    }
    g->jobs[g->n_jobs] = *job;
    drop_impossible(g, &g->jobs[g->n_jobs], &machine);
    g->n_jobs += g->jobs[g->n_jobs].n_vram > 0;
    return ERROR_OK;
}

struct axis {
    double values[GRID_MOST_VALUES];
    uint32_t n;
};

/* Lists end with 0 or NULL; axes have a count, because 0 is a value of them. */
struct section {
    const char *name;
    bool few; /* in the short form, too */
    const char *const *models, *const *machines;
    double vram[GRID_MOST_VALUES];
    uint32_t batch[GRID_MOST_VALUES];
    uint32_t prompt, answer;
    struct axis locality, skew, predictability; /* n = 0: the model's */
};

static const char *const all_models[] = {
    "demo", "mixtral", "qwen3-30b", "deepseek-v2-lite", "gpt-oss-20b", "qwen3.6-35b", NULL};
static const char *const axis_models[] = {"demo", "qwen3-30b", NULL};
static const char *const all_machines[] = {
    "3090-epyc7532", "4090-14900k", "v100-6230r", "a100-6230r", "a6000-8358p", "desktop",
    "3060-5600",     "5090-9950x",  "gh200",      "laptop",     "apu",         NULL};
static const char *const few_machines[] = {"desktop", "4090-14900k", "laptop", NULL};
static const char *const desktop[] = {"desktop", NULL};

static const struct section sections[] = {
    {.name = "machines",
     .models = all_models,
     .machines = all_machines,
     .vram = {.1, .25, .5},
     .batch = {1, 4, 16},
     .prompt = 512,
     .answer = 64},
    {.name = "batches",
     .models = all_models,
     .machines = few_machines,
     .vram = {.1, .25, .5},
     .batch = {32, 64},
     .prompt = 512,
     .answer = 64},
    {.name = "prompts",
     .models = all_models,
     .machines = few_machines,
     .vram = {.1, .25, .5},
     .batch = {1},
     .prompt = 4096,
     .answer = 64},
    {.name = "axes",
     .models = axis_models,
     .machines = desktop,
     .vram = {.1, .25, .5},
     .batch = {1, 4},
     .prompt = 64,
     .answer = 192,
     .locality = {{0, .3, .6, .9, .95}, 5},
     .skew = {{0, .2, .6}, 3},
     .predictability = {{.8, .96}, 2}},
    {.name = "curves",
     .models = all_models,
     .machines = desktop,
     .vram = {.05, .1, .15, .25, .35, .5, .75, .9},
     .batch = {1, 4},
     .prompt = 64,
     .answer = 192},
    {.name = "machines",
     .few = true,
     .models = all_models,
     .machines = few_machines,
     .vram = {.1, .25, .5},
     .batch = {1, 4},
     .prompt = 512,
     .answer = 64},
    {.name = "axes",
     .few = true,
     .models = axis_models,
     .machines = desktop,
     .vram = {.1, .5},
     .batch = {1},
     .prompt = 64,
     .answer = 192,
     .locality = {{0, .6, .95}, 3}},
    {.name = "curves",
     .few = true,
     .models = all_models,
     .machines = desktop,
     .vram = {.05, .1, .25, .5, .75},
     .batch = {1},
     .prompt = 64,
     .answer = 192},
};

static double axis_value(const struct axis *a, uint32_t i, double own)
{
    return a->n ? a->values[i % a->n] : own;
}

static uint32_t axis_size(const struct axis *a)
{
    return a->n ? a->n : 1;
}

static enum error_code add_point(struct grid *g, const struct section *s,
                                 const struct grid_model *model, const char *machine, uint32_t seed,
                                 struct error *e)
{
    uint32_t n = axis_size(&s->locality), m = axis_size(&s->skew);
    struct grid_job job = {.section = s->name,
                           .model = model,
                           .machine = machine,
                           .prompt = s->prompt,
                           .answer = s->answer,
                           .seed = seed};
    while (job.n_vram < GRID_MOST_VALUES && s->vram[job.n_vram] > 0)
        job.n_vram++;
    while (job.n_batch < GRID_MOST_VALUES && s->batch[job.n_batch])
        job.n_batch++;
    memcpy(job.vram, s->vram, sizeof job.vram);
    memcpy(job.batch, s->batch, sizeof job.batch);
    for (uint32_t i = 0; i < n * m * axis_size(&s->predictability); i++) {
        job.locality = axis_value(&s->locality, i, model->locality);
        job.skew = axis_value(&s->skew, i / n, model->skew);
        job.predictability = axis_value(&s->predictability, i / n / m, model->predictability);
        enum error_code code = add_job(g, &job, e);
        if (code)
            return code;
    }
    return ERROR_OK;
}

static bool wanted(const char *list, const char *name)
{
    return !list || in_list(list, name);
}

static bool is_one_of(const char *const *names, const char *name)
{
    while (*names && strcmp(*names, name) != 0)
        names++;
    return *names;
}

static enum error_code add_section(struct grid *g, const struct section *s,
                                   const struct grid_options *o, uint32_t seed, struct error *e)
{
    for (const struct grid_model *m = grid_models; m->name; m++) {
        if (!is_one_of(s->models, m->name) || !wanted(o->models, m->name))
            continue;
        for (const char *const *machine = s->machines; *machine; machine++) {
            if (!wanted(o->machines, *machine))
                continue;
            enum error_code code = add_point(g, s, m, *machine, seed, e);
            if (code)
                return code;
        }
    }
    return ERROR_OK;
}

static enum error_code check_list(const char *option, const char *list, const char *const *known,
                                  struct error *e)
{
    char name[64], allowed[256] = "";
    for (const char *const *k = known; *k; k++) {
        size_t at = strlen(allowed);
        snprintf(allowed + at, sizeof allowed - at, "%s%s", at ? ", " : "", *k);
    }
    for (const char *at = list; at && *at; at += strcspn(at, ","), at += *at == ',') {
        snprintf(name, sizeof name, "%.*s", (int)strcspn(at, ","), at);
        if (!is_one_of(known, name))
            return error_set(e, ERROR_USAGE, "%s: \"%s\" is not in the grid; allowed: %s", option,
                             name, allowed);
    }
    return ERROR_OK;
}

enum error_code grid_init(struct grid *g, const struct grid_options *o, struct error *e)
{
    uint32_t n_seeds = o->n_seeds ? (uint32_t)o->n_seeds : o->few ? 2 : 5;
    enum error_code code = check_list("--models", o->models, all_models, e);
    if (!code)
        code = check_list("--machines", o->machines, all_machines, e);
    *g = (struct grid){0};
    for (uint32_t k = 0; k < n_seeds; k++)
        for (size_t i = 0; i < sizeof sections / sizeof *sections && !code; i++)
            if (sections[i].few == o->few)
                code = add_section(g, &sections[i], o, GRID_FIRST_SEED + k, e);
    if (!code && !g->n_jobs)
        code = error_set(e, ERROR_USAGE, "no cell of the grid has these models and machines");
    if (code)
        grid_fini(g);
    return code;
}

void grid_fini(struct grid *g)
{
    free(g->jobs);
    *g = (struct grid){0};
}
