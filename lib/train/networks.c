/* The network of one layer: its inputs, its start, its training; see train.h. */
#include "train/blas.h"
#include "train/fit.h"
#include "train/half.h"
#include "train/internal.h"

#include "base/arrays.h"
#include "base/clock.h"
#include "sched/predict/trained_net.h"

#include <stdlib.h>
#include <string.h>

/* The papers do not give these. bench/results/training.md compares some of them. */
enum { WARM_EPOCHS = 5, BATCH = 128 };
#define RATE         1e-3f
#define MIDDLE_RATE  2e-3f
#define DECAY        0.01f
#define MIDDLE_DECAY 0.02f
#define NOISE        0.05f
#define MASKED       0.05f
#define LAMBDA       0.5f

static float spent(void *arg)
{
    struct train_job *j = arg;
    if (atomic_load(&j->t->stop)) {
        j->stopped = true;
        return 1;
    }
    if (!j->until_s)
        return 0;
    double now = clock_s();
    return now < j->until_s ? (float)((now - j->began_s) / (j->until_s - j->began_s)) : 1;
}

static void after_epoch(void *arg)
{
    struct train_job *j = arg;
    atomic_fetch_add(&j->t->done, 1);
}

static bool read_active(struct train_job *j)
{
    const struct training *t = j->t;
    uint32_t n = t->samples.n_train + t->samples.n_check;
    j->active = malloc((size_t)n * t->shape->n_used * sizeof *j->active);
    if (j->active)
        samples_read(&t->samples, j->layer, 0, n, NULL, j->active, NULL);
    return j->active != NULL;
}

/* Starts the network as the target's gate: a linear map of the inputs p, which stand for the gate
 * input mean + p inverse (inverse NULL: mean + deviation p). The bias accounts for the step from
 * the mean of the layer that is read to the mean of the target. */
static bool start_as_gate(const struct train_job *j, const float *inverse, uint32_t n_linear,
                          struct net *net)
{
    const struct training *t = j->t;
    const struct trace_layer *y = trace_layer(t->trace, j->layer);
    size_t d = t->shape->d_model, n = t->shape->n_experts;
    const double *mean = t->facts.mean + j->layer * d;
    const double *deviation = t->facts.deviation + j->from * d;
    if (t->options.random_start || !y->matrix)
        return true;
    float *map, *bias;
    void *memory = ARRAYS_NEW(ARRAY(map, n * n_linear), ARRAY(bias, n));
    if (!memory)
        return false;
    for (size_t i = 0; i < n; i++) {
        const float *row = y->matrix + i * d;
        double sum = y->bias ? y->bias[i] : 0;
        for (size_t k = 0; k < d; k++)
            sum += row[k] * mean[k];
        bias[i] = (float)sum;
        for (size_t p = 0; p < n_linear; p++) {
            double v = 0;
            for (size_t k = 0; inverse && k < d; k++)
                v += (double)row[k] * inverse[p * d + k];
            map[i * n_linear + p] = (float)(inverse ? v : row[p] * deviation[p]);
        }
    }
    net_start_linear(net, map, n_linear, bias);
    free(memory);
    return true;
}

static bool fit_network(struct train_job *j, struct net *net, const struct fit_options *options,
                        struct noise *noise)
{
    const struct samples *s = &j->t->samples;
    struct fit_rows rows = {j->x, j->active, j->t->shape->n_used, s->n_train, s->n_check};
    double log_loss;
    return fit_run(net, &rows, options, noise, &log_loss);
}

/* Reads the inputs of an MLP: (value - mean) / deviation. */
static bool read_standardised(struct train_job *j)
{
    const struct training *t = j->t;
    size_t d = t->shape->d_model;
    uint32_t n = t->samples.n_train + t->samples.n_check;
    const double *mean = t->facts.mean + j->from * d;
    const double *deviation = t->facts.deviation + j->from * d;
    j->x = malloc(n * d * sizeof *j->x);
    if (!j->x)
        return false;
    samples_read(&t->samples, j->from, 0, n, j->x, NULL, NULL);
    for (size_t r = 0; r < n; r++)
        for (size_t i = 0; i < d; i++)
            j->x[r * d + i] = (float)((j->x[r * d + i] - mean[i]) / deviation[i]);
    return true;
}

/* Makes the network read the gate input itself: w (x - mean) / deviation becomes w' x + b'. */
static void fold_standardisation(const struct train_job *j, struct net *net)
{
    const struct training *t = j->t;
    size_t d = t->shape->d_model, hidden = net->shape.n_hidden;
    const double *mean = t->facts.mean + j->from * d;
    const double *deviation = t->facts.deviation + j->from * d;
    for (size_t h = 0; h < hidden; h++) {
        double bias = net->w[net->parts.b_in + h];
        for (size_t i = 0; i < d; i++) {
            float *w = &net->w[net->parts.w_in + i * hidden + h];
            *w = half_value((float)(*w / deviation[i]));
            bias -= *w * mean[i];
        }
        net->w[net->parts.b_in + h] = (float)bias;
    }
}

enum error_code train_mlp(struct train_job *j, struct error *e)
{
    struct training *t = j->t;
    struct net net = {0};
    struct net_shape shape = train_mlp_shape(t);
    struct noise noise = noise_of(t->options.seed, 'm', j->layer);
    struct fit_options options = {.epochs = t->options.epochs,
                                  .rate = RATE,
                                  .decay = DECAY,
                                  .warm_epochs = WARM_EPOCHS,
                                  .loss = {.lambda = 1},
                                  .spent = spent,
                                  .after_epoch = after_epoch,
                                  .arg = j};
    bool done = read_active(j) && read_standardised(j) && net_init(&net, &shape, BATCH, &noise) &&
                start_as_gate(j, NULL, shape.n_in, &net) && fit_network(j, &net, &options, &noise);
    if (done && !j->stopped) {
        fold_standardisation(j, &net);
        image_fill_network(&t->image, &t->image.layers[j->layer].mlp, &net);
    }
    net_fini(&net);
    return done ? ERROR_OK : error_set(e, ERROR_MEMORY, "no memory to train layer %u", j->layer);
}

/* Reads the inputs of LLaPor: components, choices, weights. */
static bool read_llapor(struct train_job *j, const struct pca *pca)
{
    const struct training *t = j->t;
    size_t d = t->shape->d_model, n_experts = t->shape->n_experts, used = t->shape->n_used;
    size_t width = pca->n + 2 * n_experts;
    uint32_t n = t->samples.n_train + t->samples.n_check;
    float *hidden, *gate;
    uint32_t *selected;
    void *buffers = ARRAYS_NEW(ARRAY(hidden, TRAIN_CHUNK * d), ARRAY(gate, TRAIN_CHUNK * n_experts),
                               ARRAY(selected, TRAIN_CHUNK * used));
    j->x = malloc(n * width * sizeof *j->x);
    bool done = buffers && j->x;
    for (uint32_t r = 0; done && r < n; r += TRAIN_CHUNK) {
        uint32_t count = smaller(n - r, TRAIN_CHUNK);
        float *x = j->x + r * width;
        samples_read(&t->samples, j->from, r, count, hidden, selected, gate);
        for (uint32_t i = 0; i < count; i++) {
            memcpy(x + i * width, pca->bias, pca->n * sizeof *x);
            trained_llapor_rest((uint32_t)n_experts, (uint32_t)used, selected + i * used,
                                gate + i * n_experts, x + i * width + pca->n);
        }
        blas_product(false, false, count, pca->n, d, hidden, d, pca->basis, pca->n, 1, x, width);
    }
    free(buffers);
    return done;
}

/* The middle group has "higher learning rates and weight decay". The other groups have the hybrid
 * loss and the warm-up. */
static struct fit_options llapor_options(struct train_job *j, const float *weight)
{
    const struct training *t = j->t;
    bool middle = t->groups[j->layer] == GROUP_MIDDLE, plain = middle || t->options.plain_loss;
    return (struct fit_options){.epochs = t->options.epochs,
                                .rate = middle ? MIDDLE_RATE : RATE,
                                .decay = middle ? MIDDLE_DECAY : DECAY,
                                .warm_epochs = middle ? 1 : WARM_EPOCHS,
                                .noise = NOISE,
                                .masked = MASKED,
                                .loss = {plain ? 1 : LAMBDA, plain ? NULL : weight},
                                .spent = spent,
                                .after_epoch = after_epoch,
                                .arg = j};
}

enum error_code train_llapor(struct train_job *j, struct error *e)
{
    struct training *t = j->t;
    const struct pca *pca = &t->pca[t->groups[j->layer]];
    uint32_t n_experts = t->shape->n_experts;
    struct net net = {0};
    struct net_shape shape = train_llapor_shape(t, j->layer);
    struct noise noise = noise_of(t->options.seed, 'l', j->layer);
    float *weight = malloc(n_experts * sizeof *weight);
    bool done = weight && read_active(j) && read_llapor(j, pca) &&
                net_init(&net, &shape, BATCH, &noise) &&
                start_as_gate(j, pca->inverse, pca->n, &net);
    if (done) {
        loss_weights(t->facts.counts + (size_t)j->layer * n_experts, n_experts, weight);
        struct fit_options options = llapor_options(j, weight);
        done = fit_network(j, &net, &options, &noise);
    }
    if (done && !j->stopped)
        image_fill_network(&t->image, &t->image.layers[j->layer].llapor, &net);
    net_fini(&net);
    free(weight);
    return done ? ERROR_OK : error_set(e, ERROR_MEMORY, "no memory to train layer %u", j->layer);
}
