/* Trains predictors from a trace; see train.h. The steps:
 *
 *     1. choose the samples (samples.c)
 *     2. compute facts: means, layer groups (samples.c, groups.c)
 *     3. lay out the file (lay_out.c)
 *     4. compute the PCA of each group, on several threads (pca.c)
 *     5. train a network per layer and kind, on several threads (networks.c)
 *     6. finish the file and judge its predictors as the worker uses them (judge.c) */
#include "train/blas.h"
#include "train/internal.h"
#include "train/jobs.h"
#include "train/judge.h"

#include "base/clock.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { EPOCHS = 30 }; /* the papers do not give it */

/* ---- Preparing ---- */

static void find_groups(struct training *t)
{
    uint32_t first = t->shape->first_layer, n = t->shape->n_layers - first;
    if (t->options.one_group || n < 2)
        return;
    /* the first layer has no previous layer: take the second's value */
    t->facts.similarity[first] = t->facts.similarity[first + 1];
    groups_find(n, t->facts.similarity + first, t->facts.skew + first, t->groups + first);
}

/* A residual vector is the mean step from a layer's gate input to the next one's: the difference of
 * the means. */
static enum error_code fill_residuals(struct training *t, struct error *e)
{
    size_t d = t->shape->d_model;
    float *residual = malloc(d * sizeof *residual);
    if (!residual)
        return error_set(e, ERROR_MEMORY, "no memory for residual vectors");
    for (uint32_t i = t->shape->first_layer; i + 1 < t->shape->n_layers; i++) {
        const double *mean = t->facts.mean + i * d;
        for (size_t k = 0; k < d; k++)
            residual[k] = (float)(mean[d + k] - mean[k]);
        image_fill_residual(&t->image, i, residual);
    }
    free(residual);
    return ERROR_OK;
}

/* ---- Running jobs ---- */

static bool go_on(void *arg)
{
    struct training *t = arg;
    const struct train_options *o = &t->options;
    return !o->progress || o->progress(o->progress_arg, t->doing, atomic_load(&t->done), t->total);
}

typedef enum error_code job_function(void *arg, uint32_t job, struct error *e);

static enum error_code run_jobs(struct training *t, const char *doing, uint32_t n, uint64_t total,
                                job_function *run, struct error *e)
{
    t->doing = doing;
    t->total = total;
    atomic_store(&t->done, 0);
    struct jobs jobs = {.n = n,
                        .n_threads = t->options.threads,
                        .run = run,
                        .poll = go_on,
                        .arg = t,
                        .stop = &t->stop};
    return jobs_run(&jobs, e);
}

static enum error_code fit_group(void *arg, uint32_t g, struct error *e)
{
    struct training *t = arg;
    size_t d = t->shape->d_model;
    struct pca_sums sums = {0};
    if (!t->components[g])
        return ERROR_OK;
    float *rows = malloc(TRAIN_CHUNK * d * sizeof *rows);
    enum error_code code = rows ? pca_sums_new((uint32_t)d, &sums, e)
                                : error_set(e, ERROR_MEMORY, "no memory for a covariance");
    for (uint32_t i = t->shape->first_layer + LLAPOR_DISTANCE; !code && i < t->shape->n_layers; i++)
        for (uint32_t r = 0; t->groups[i] == g && r < t->samples.n_train && !atomic_load(&t->stop);
             r += TRAIN_CHUNK) {
            uint32_t n = smaller(t->samples.n_train - r, TRAIN_CHUNK);
            samples_read(&t->samples, i - LLAPOR_DISTANCE, r, n, rows, NULL, NULL);
            pca_sums_add(&sums, rows, n);
        }
    bool stopped = atomic_load(&t->stop);
    if (!code && !stopped)
        code = pca_fit(&sums, t->components[g], t->options.whiten, &t->pca[g], e);
    pca_sums_free(&sums);
    free(rows);
    if (code || stopped)
        return code;
    image_fill_group(&t->image, t->places[g], &t->pca[g]);
    t->report.kept[g] = t->pca[g].kept;
    atomic_fetch_add(&t->done, 1);
    return ERROR_OK;
}

/* ---- Networks ---- */

/* Shares the remaining time among the remaining networks. */
static void limit_job(struct train_job *j)
{
    struct training *t = j->t;
    uint64_t left = atomic_fetch_sub(&t->networks_left, 1);
    double rounds = ceil((double)left / t->options.threads);
    j->began_s = clock_s();
    j->until_s = t->until_s ? j->began_s + (t->until_s - j->began_s) / rounds : 0;
}

/* False: the layer has none that this run trains. */
static bool has_network(const struct training *t, uint32_t layer, bool mlp)
{
    const struct trained_layer *y = &t->image.layers[layer];
    return train_wants(t, mlp ? TRAIN_MLP : TRAIN_LLAPOR) && (mlp ? y->mlp : y->llapor).offset;
}

/* Job 2 l is the MLP of the l-th layer with experts, 2 l + 1 its LLaPor. */
static enum error_code fit_job(void *arg, uint32_t job, struct error *e)
{
    struct training *t = arg;
    uint32_t at = job / 2;
    bool mlp = job % 2 == 0;
    struct train_job j = {.t = t, .layer = t->shape->first_layer + at};
    if (!has_network(t, j.layer, mlp))
        return ERROR_OK;
    j.from = j.layer - (mlp ? t->options.stride : LLAPOR_DISTANCE);
    limit_job(&j);
    enum error_code code = mlp ? train_mlp(&j, e) : train_llapor(&j, e);
    t->trained[job] = !code && !j.stopped;
    free(j.x);
    free(j.active);
    return code;
}

static uint32_t count_networks(const struct training *t)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < t->shape->n_layers; i++)
        n += has_network(t, i, true) + has_network(t, i, false);
    return n;
}

/* Takes networks that were not trained out of the file; their places stay empty. Returns how many
 * are left. */
static uint32_t drop_untrained(struct training *t)
{
    uint32_t n = 0;
    for (uint32_t job = 0; job < 2 * (t->shape->n_layers - t->shape->first_layer); job++) {
        struct trained_layer *y = &t->image.layers[t->shape->first_layer + job / 2];
        struct trained_network *network = job % 2 == 0 ? &y->mlp : &y->llapor;
        if (t->trained[job])
            n++;
        else if (has_network(t, t->shape->first_layer + job / 2, job % 2 == 0))
            *network = (struct trained_network){0};
    }
    return n;
}

static enum error_code fit_networks(struct training *t, struct error *e)
{
    uint32_t n = count_networks(t), n_layers = t->shape->n_layers - t->shape->first_layer;
    enum error_code code = ERROR_OK;
    t->report.n_networks = n;
    if (train_wants(t, TRAIN_LLAPOR))
        code = run_jobs(t, "components", LAYER_GROUPS, LAYER_GROUPS, fit_group, e);
    if (code || !n)
        return code;
    t->until_s = t->options.seconds > 0 ? clock_s() + t->options.seconds : 0;
    atomic_store(&t->networks_left, n);
    code = run_jobs(t, "networks", 2 * n_layers, (uint64_t)n * t->options.epochs, fit_job, e);
    t->report.n_trained = code && code != ERROR_CANCELLED ? 0 : drop_untrained(t);
    t->report.interrupted = code == ERROR_CANCELLED && t->report.n_trained;
    return t->report.interrupted ? ERROR_OK : code;
}

/* ---- Judging, and the whole ---- */

static enum error_code judge_job(void *arg, uint32_t job, struct error *e)
{
    struct training *t = arg;
    uint32_t layer = t->shape->first_layer + job / TRAIN_JUDGED;
    enum train_judged which = (enum train_judged)(job % TRAIN_JUDGED);
    static const uint32_t trains[TRAIN_JUDGED] = {[JUDGED_RESIDUAL] = TRAIN_RESIDUAL,
                                                  [JUDGED_MLP] = TRAIN_MLP,
                                                  [JUDGED_LLAPOR] = TRAIN_LLAPOR};
    if (trains[which] && !train_wants(t, trains[which]))
        return ERROR_OK; /* kept of another run, which may have seen these tokens */
    enum error_code code =
        judge(&t->samples, &t->predictors, which, layer,
              &t->report.scores[(size_t)layer * TRAIN_JUDGED + (unsigned)which], e);
    atomic_fetch_add(&t->done, 1);
    return code;
}

static enum error_code judge_all(struct training *t, struct error *e)
{
    char why[TRAINED_WHY];
    image_finish(&t->image);
    if (!trained_view(t->image.bytes, t->image.end, &t->predictors, why))
        return error_set(e, ERROR_INTERNAL, "cannot read the trained predictors: %s", why);
    if (t->report.interrupted)
        return ERROR_OK;
    uint32_t n = (t->shape->n_layers - t->shape->first_layer) * TRAIN_JUDGED;
    return run_jobs(t, "judging", n, n, judge_job, e);
}

static enum error_code check_options(struct training *t, struct error *e)
{
    struct train_options *o = &t->options;
    uint32_t n_layers = t->shape->n_layers - t->shape->first_layer;
    o->epochs = o->epochs ? o->epochs : EPOCHS;
    o->threads = o->threads ? o->threads : 1;
    o->stride = o->stride ? o->stride : 2;
    if (train_wants(t, TRAIN_LLAPOR) && !(t->shape->has & TRACE_GATE))
        return error_set(e, ERROR_UNSUPPORTED,
                         "llapor needs the gates' probabilities, which the trace lacks: train "
                         "the others with --only residual,mlp");
    if (t->shape->n_layers > TRAINED_MAX_LAYERS || t->shape->n_experts > TRAINED_MAX_EXPERTS ||
        t->shape->d_model > TRAINED_MAX_WIDTH)
        return error_set(e, ERROR_LIMIT, "the trace's model is larger than training can take");
    if (train_wants(t, TRAIN_MLP) && o->stride >= n_layers)
        return error_set(e, ERROR_USAGE, "a stride of %u layers is too long for a model of %u",
                         o->stride, n_layers);
    return ERROR_OK;
}

static enum error_code prepare(struct training *t, struct error *e)
{
    uint32_t n = t->shape->n_layers;
    t->groups = calloc(n, sizeof *t->groups);
    t->report.scores = calloc((size_t)n * TRAIN_JUDGED, sizeof *t->report.scores);
    t->trained = calloc(2 * (size_t)n, sizeof *t->trained);
    if (!t->groups || !t->report.scores || !t->trained)
        return error_set(e, ERROR_MEMORY, "no memory to train");
    enum error_code code = blas_open(e);
    if (!code)
        code = samples_new(t->trace, t->options.seed, &t->samples, e);
    if (!code)
        code = sample_facts_new(&t->samples, go_on, t, &t->facts, e);
    if (code)
        return code;
    find_groups(t);
    code = train_lay_out(t, e);
    if (!code)
        image_fill_activations(&t->image, t->facts.counts);
    return !code && train_wants(t, TRAIN_RESIDUAL) ? fill_residuals(t, e) : code;
}

/* Fills *out, which takes the arrays from t. */
static void report(struct training *t, struct train_report *out)
{
    *out = t->report;
    out->n_layers = t->shape->n_layers;
    out->first_layer = t->shape->first_layer;
    out->n_train = t->samples.n_train;
    out->n_check = t->samples.n_check;
    out->n_held = t->samples.n - t->samples.n_train - t->samples.n_check;
    out->groups = t->groups;
    out->similarity = t->facts.similarity;
    out->skew = t->facts.skew;
    memcpy(out->components, t->components, sizeof out->components);
    for (uint32_t i = 0; i < out->n_layers; i++) {
        struct net_shape mlp = train_mlp_shape(t), llapor = train_llapor_shape(t, i);
        uint64_t mlp_bytes = 2 * net_parts(&mlp).n, llapor_bytes = 2 * net_parts(&llapor).n;
        if (has_network(t, i, true))
            out->mlp_bytes = mlp_bytes;
        if (has_network(t, i, false) && llapor_bytes > out->llapor_bytes)
            out->llapor_bytes = llapor_bytes;
    }
    t->groups = NULL;
    t->facts.similarity = t->facts.skew = NULL;
    t->report.scores = NULL;
}

enum error_code train_run(const struct trace *trace, const struct train_options *options,
                          struct train_result *out, struct error *e)
{
    struct training t = {
        .trace = trace, .shape = trace_shape(trace), .options = *options, .doing = "samples"};
    enum error_code code = check_options(&t, e);
    if (!code)
        code = prepare(&t, e);
    if (!code)
        code = fit_networks(&t, e);
    if (!code)
        code = judge_all(&t, e);
    if (!code) {
        report(&t, &out->report);
        out->bytes = t.image.bytes;
        out->n = t.image.end;
        t.image.bytes = NULL;
    }
    for (int g = 0; g < LAYER_GROUPS; g++)
        pca_free(&t.pca[g]);
    image_free(&t.image);
    samples_free(&t.samples);
    sample_facts_free(&t.facts);
    free(t.groups);
    free(t.trained);
    free(t.report.scores);
    return code;
}

void train_result_free(struct train_result *r)
{
    free(r->bytes);
    free(r->report.scores);
    free(r->report.groups);
    free(r->report.similarity);
    free(r->report.skew);
    *r = (struct train_result){0};
}
