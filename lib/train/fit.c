/* Trains a network; see fit.h. */
#include "train/fit.h"
#include "train/adam.h"

#include "base/arrays.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { PLATT_STEPS = 25 };

/* ---- Calibration ---- */

/* The mean log-loss of a z + b; the gradient g and the second derivatives h of its sum by a and b.
 */
static double platt_loss(const float *logits, const unsigned char *is_active, size_t n, double a,
                         double b, double g[2], double h[3])
{
    double loss = 0;
    g[0] = g[1] = h[0] = h[1] = h[2] = 0;
    for (size_t i = 0; i < n; i++) {
        double z = logits[i], v = a * z + b, y = is_active[i], p = 1 / (1 + exp(-v));
        loss += (v > 0 ? v + log1p(exp(-v)) : log1p(exp(v))) - y * v;
        double w = p * (1 - p);
        g[0] += (p - y) * z;
        g[1] += p - y;
        h[0] += w * z * z;
        h[1] += w * z;
        h[2] += w;
    }
    return loss / (double)n;
}

static double platt(const float *logits, const unsigned char *is_active, size_t n, double *a,
                    double *b)
{
    double g[2], h[3], other_g[2], other_h[3];
    double loss = platt_loss(logits, is_active, n, *a, *b, g, h);
    for (int i = 0; i < PLATT_STEPS; i++) {
        double ridge = 1e-9 * (h[0] + h[2]) + 1e-12;
        double det = (h[0] + ridge) * (h[2] + ridge) - h[1] * h[1];
        double da = ((h[2] + ridge) * g[0] - h[1] * g[1]) / det;
        double db = ((h[0] + ridge) * g[1] - h[1] * g[0]) / det, step = 1, next = loss;
        /* halve a step that is too long */
        for (; step > 1e-3; step /= 2) {
            next =
                platt_loss(logits, is_active, n, *a - step * da, *b - step * db, other_g, other_h);
            if (next < loss)
                break;
        }
        if (!(next < loss - 1e-9))
            break;
        *a -= step * da;
        *b -= step * db;
        loss = next;
        memcpy(g, other_g, sizeof g);
        memcpy(h, other_h, sizeof h);
    }
    return loss;
}

static void mark_active(const uint32_t *active, uint32_t n, uint32_t n_experts, uint32_t n_used,
                        unsigned char *is_active)
{
    memset(is_active, 0, (size_t)n * n_experts);
    for (uint32_t t = 0; t < n; t++)
        for (uint32_t k = 0; k < n_used; k++)
            is_active[(size_t)t * n_experts + active[(size_t)t * n_used + k]] = 1;
}

double fit_platt(const float *logits, const uint32_t *active, uint32_t n, uint32_t n_experts,
                 uint32_t n_used, double *a, double *b)
{
    unsigned char *is_active = malloc((size_t)n * n_experts);
    *a = 1;
    *b = 0;
    if (!is_active)
        return NAN;
    mark_active(active, n, n_experts, n_used, is_active);
    double loss = platt(logits, is_active, (size_t)n * n_experts, a, b);
    free(is_active);
    return loss;
}

/* ---- Epochs ---- */

struct fit {
    struct net *net;
    const struct fit_rows *rows;
    const struct fit_options *options;
    struct noise *noise;
    struct adam adam;
    uint32_t *order;  /* [n_train] */
    float *x;         /* [batch][n_in] */
    uint32_t *active; /* [batch][n_used] */
    float *logits;    /* [n_check][n_out] */
    unsigned char *is_active;
    float *best;  /* the weights */
    void *memory; /* of the arrays */
    double best_loss, best_a, best_b;
};

static bool fit_init(struct fit *f)
{
    const struct net *n = f->net;
    const struct fit_rows *r = f->rows;
    size_t batch = n->max_batch, checked = (size_t)r->n_check * n->shape.n_out;
    f->memory = ARRAYS_NEW(ARRAY(f->order, r->n_train), ARRAY(f->x, batch * n->shape.n_in),
                           ARRAY(f->active, batch * r->n_used), ARRAY(f->logits, checked),
                           ARRAY(f->is_active, checked), ARRAY(f->best, n->parts.n));
    return adam_init(&f->adam, n->parts.n) && f->memory;
}

static void fit_fini(struct fit *f)
{
    adam_fini(&f->adam);
    free(f->memory);
}

/* Computes the calibrated loss on the check rows and keeps the best weights. */
static void check(struct fit *f)
{
    struct net *n = f->net;
    const struct fit_rows *r = f->rows;
    size_t n_out = n->shape.n_out;
    for (uint32_t i = 0; i < r->n_check; i += n->max_batch) {
        uint32_t batch = r->n_check - i < n->max_batch ? r->n_check - i : n->max_batch;
        net_forward(n, r->x + (size_t)(r->n_train + i) * n->shape.n_in, batch, NULL);
        memcpy(f->logits + i * n_out, n->logits, batch * n_out * sizeof *f->logits);
    }
    double a = 1, b = 0, loss = platt(f->logits, f->is_active, r->n_check * n_out, &a, &b);
    if (!(loss < f->best_loss))
        return;
    f->best_loss = loss;
    f->best_a = a;
    f->best_b = b;
    memcpy(f->best, n->w, n->parts.n * sizeof *f->best);
}

/* Adds Gaussian noise and random masking. */
static void disturb(struct fit *f, float *x)
{
    const struct fit_options *o = f->options;
    for (uint32_t i = 0; i < f->net->shape.n_in; i++) {
        if (o->noise > 0)
            x[i] += o->noise * noise_normal(f->noise);
        if (o->masked > 0 && noise_uniform(f->noise) < o->masked)
            x[i] = 0;
    }
}

static void step(struct fit *f, uint32_t first, uint32_t batch, float rate)
{
    struct net *n = f->net;
    const struct fit_rows *r = f->rows;
    size_t n_in = n->shape.n_in;
    for (uint32_t t = 0; t < batch; t++) {
        uint32_t row = f->order[first + t];
        memcpy(f->x + t * n_in, r->x + row * n_in, n_in * sizeof *f->x);
        memcpy(f->active + (size_t)t * r->n_used, r->active + (size_t)row * r->n_used,
               r->n_used * sizeof *f->active);
        disturb(f, f->x + t * n_in);
    }
    net_forward(n, f->x, batch, f->noise);
    loss_of(&f->options->loss, n->logits, f->active, batch, n->shape.n_out, r->n_used, n->error);
    net_backward(n, f->x, batch);
    adam_step(&f->adam, n->gradient, rate, f->options->decay, n->parts.n_biases, n->w);
}

/* *done: the rows of the run so far. False: the time is over. */
static bool run_epoch(struct fit *f, float warm, float *done)
{
    const struct fit_options *o = f->options;
    uint32_t n = f->rows->n_train, batch = f->net->max_batch;
    float total = (float)o->epochs * (float)n;
    noise_shuffle(f->noise, n, f->order);
    for (uint32_t i = 0; i < n; i += batch) {
        uint32_t count = n - i < batch ? n - i : batch;
        float spent = o->spent ? o->spent(o->arg) : 0;
        if (spent >= 1)
            return false;
        *done += (float)count;
        float at = *done / total > spent ? *done / total : spent;
        step(f, i, count, o->rate * adam_schedule(at, warm));
    }
    return true;
}

static void epochs(struct fit *f)
{
    const struct fit_options *o = f->options;
    float warm = o->epochs > 2 * o->warm_epochs ? o->warm_epochs / (float)o->epochs : 0.2f;
    float done = 0;
    bool more = true;
    for (uint32_t epoch = 0; more && epoch < o->epochs; epoch++) {
        more = run_epoch(f, warm, &done);
        check(f);
        if (more && o->after_epoch)
            o->after_epoch(o->arg);
    }
}

/* Folds a z + b into the last layer. */
static void fold(struct net *n, double a, double b)
{
    const struct net_parts *p = &n->parts;
    size_t n_out = n->shape.n_out;
    for (size_t i = 0; i < n_out; i++)
        n->w[p->b_out + i] = (float)(a * n->w[p->b_out + i] + b);
    for (size_t i = 0; i < n->shape.n_hidden * n_out; i++)
        n->w[p->w_out + i] = (float)(a * n->w[p->w_out + i]);
}

bool fit_run(struct net *net, const struct fit_rows *rows, const struct fit_options *options,
             struct noise *noise, double *log_loss)
{
    struct fit f = {.net = net,
                    .rows = rows,
                    .options = options,
                    .noise = noise,
                    .best_loss = INFINITY,
                    .best_a = 1};
    bool done = fit_init(&f);
    if (done) {
        mark_active(rows->active + (size_t)rows->n_train * rows->n_used, rows->n_check,
                    net->shape.n_out, rows->n_used, f.is_active);
        memcpy(f.best, net->w, net->parts.n * sizeof *f.best);
        check(&f);
        fold(net, f.best_a, f.best_b); /* training begins with a calibrated network */
        f.best_loss = INFINITY;
        check(&f);
        epochs(&f);
        memcpy(net->w, f.best, net->parts.n * sizeof *f.best);
        fold(net, f.best_a, f.best_b);
        *log_loss = f.best_loss;
    }
    fit_fini(&f);
    return done;
}
