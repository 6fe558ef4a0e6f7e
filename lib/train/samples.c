/* Training's tokens; see samples.h. */
#include "train/samples.h"
#include "train/noise.h"

#include "base/arrays.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LEAST_SAMPLES = 64, ROWS_BETWEEN_CALLS = 512 };

static uint32_t count_hidden(const struct trace *t, uint32_t sequence)
{
    uint32_t n;
    trace_hidden_tokens(t, sequence, &n);
    return n;
}

/* Assigns the sequences from *at on, in the trace's order, to part `what` until they have a tenth
 * of `of` tokens together, and leaves *at behind them. False: the trace ends before, or at *at they
 * would have over a fifth. */
static bool mark_run(const struct trace *t, uint32_t *at, uint64_t of, unsigned char what,
                     unsigned char *part)
{
    uint64_t taken = 0;
    for (; taken * 10 < of; (*at)++) {
        if (*at == trace_sequences(t))
            return false;
        taken += count_hidden(t, *at);
        if (taken * 5 > of)
            return false;
        part[*at] = what;
    }
    return true;
}

/* Marks the sequences held out and the ones for checking after them, at the first place from
 * `begin` on where they fit; where the trace ends, from its beginning on. */
static bool mark(const struct trace *t, uint32_t begin, uint64_t total, unsigned char *part)
{
    uint32_t n = trace_sequences(t), at = begin;
    for (bool again = false;;) {
        memset(part, 0, n);
        if (mark_run(t, &at, total, 2, part) && mark_run(t, &at, total - total / 10, 1, part))
            return true;
        at++; /* the sequence that is too long */
        if (at >= n && again)
            break;
        if (at >= n) {
            again = true;
            at = 0;
        }
    }
    memset(part, 0, n);
    return false;
}

/* Adds all rows of a part. parts NULL: cuts each sequence; its last tenth is held out, the tenth
 * before that is for checking. */
static uint32_t add_rows(struct samples *s, const unsigned char *parts, unsigned char part)
{
    uint32_t before = s->n;
    for (uint32_t i = 0; i < trace_sequences(s->trace); i++) {
        uint32_t n, first = 0, last;
        const uint32_t *tokens = trace_hidden_tokens(s->trace, i, &n);
        last = n;
        if (parts && parts[i] != part)
            continue;
        if (!parts) {
            uint32_t held = n - n / 10, check = held - n / 10;
            first = part == 0 ? 0 : part == 1 ? check : held;
            last = part == 0 ? check : part == 1 ? held : n;
        }
        for (uint32_t k = first; k < last; k++)
            s->rows[s->n++] = (struct sample){i, tokens[k]};
    }
    return s->n - before;
}

static void split(struct samples *s, uint64_t seed, uint64_t total, unsigned char *parts)
{
    struct noise r = noise_of(seed, 'p', 0);
    bool whole = mark(s->trace, noise_below(&r, trace_sequences(s->trace)), total, parts);
    s->n_train = add_rows(s, whole ? parts : NULL, 0);
    s->n_check = add_rows(s, whole ? parts : NULL, 1);
    add_rows(s, whole ? parts : NULL, 2);
}

enum error_code samples_new(const struct trace *trace, uint64_t seed, struct samples *out,
                            struct error *e)
{
    uint32_t n = trace_sequences(trace);
    uint64_t total = 0;
    for (uint32_t i = 0; i < n; i++)
        total += count_hidden(trace, i);
    if (!(trace_shape(trace)->has & TRACE_HIDDEN) || total < LEAST_SAMPLES)
        return error_set(e, ERROR_UNSUPPORTED,
                         "the trace has the gates' inputs of %" PRIu64
                         " tokens, too few to train on: record it with `moed profile --hidden`",
                         total);
    if (total > UINT32_MAX / 2)
        return error_set(e, ERROR_LIMIT, "the trace has more tokens than training can take");
    struct samples s = {.trace = trace, .rows = calloc(total, sizeof *s.rows)};
    unsigned char *parts = calloc(n, sizeof *parts);
    enum error_code code = ERROR_OK;
    if (!s.rows || !parts)
        code = error_set(e, ERROR_MEMORY, "no memory for %" PRIu64 " samples", total);
    else
        split(&s, seed, total, parts);
    if (!code && (!s.n_check || s.n == s.n_train + s.n_check))
        code = error_set(e, ERROR_UNSUPPORTED, "the trace is too short to hold a part of it out");
    free(parts);
    if (code)
        samples_free(&s);
    else
        *out = s;
    return code;
}

void samples_free(struct samples *s)
{
    free(s->rows);
    *s = (struct samples){0};
}

void samples_read(const struct samples *s, uint32_t layer, uint32_t first, uint32_t n,
                  float *hidden, uint32_t *selected, float *gate)
{
    const struct trace_shape *shape = trace_shape(s->trace);
    for (uint32_t i = 0; i < n; i++) {
        const struct sample *r = &s->rows[first + i];
        if (hidden)
            trace_hidden(s->trace, r->sequence, r->token, layer,
                         hidden + (size_t)i * shape->d_model);
        if (selected)
            trace_selected(s->trace, r->sequence, r->token, layer,
                           selected + (size_t)i * shape->n_used);
        if (gate)
            trace_gate(s->trace, r->sequence, r->token, layer, gate + (size_t)i * shape->n_experts);
    }
}

/* ---- Facts ---- */

/* Buffers for one row. */
struct reader {
    float *hidden, *before, *gate;
    uint32_t *selected;
};

static double cosine(const float *a, const float *b, uint32_t n)
{
    double ab = 0, aa = 0, bb = 0;
    for (uint32_t i = 0; i < n; i++) {
        ab += (double)a[i] * b[i];
        aa += (double)a[i] * a[i];
        bb += (double)b[i] * b[i];
    }
    return aa > 0 && bb > 0 ? ab / sqrt(aa * bb) : 0;
}

static double first_share(const float *gate, const uint32_t *selected, uint32_t n_used)
{
    double sum = 0, most = 0;
    for (uint32_t k = 0; k < n_used; k++) {
        double w = gate[selected[k]];
        sum += w;
        most = w > most ? w : most;
    }
    return sum > 0 ? most / sum : 0;
}

/* Adds one layer of one row. r->before: the gate input of the previous layer. */
static void add_fact(struct sample_facts *f, const struct samples *s, uint32_t row, uint32_t layer,
                     struct reader *r)
{
    const struct trace_shape *shape = trace_shape(s->trace);
    double *mean = f->mean + (size_t)layer * f->d_model;
    double *square = f->deviation + (size_t)layer * f->d_model;
    bool gated = shape->has & TRACE_GATE;
    samples_read(s, layer, row, 1, r->hidden, r->selected, gated ? r->gate : NULL);
    for (uint32_t i = 0; i < f->d_model; i++) {
        mean[i] += r->hidden[i];
        square[i] += (double)r->hidden[i] * r->hidden[i];
    }
    for (uint32_t k = 0; k < shape->n_used; k++)
        f->counts[(size_t)layer * f->n_experts + r->selected[k]]++;
    if (layer > shape->first_layer)
        f->similarity[layer] += cosine(r->before, r->hidden, f->d_model);
    if (gated)
        f->skew[layer] += first_share(r->gate, r->selected, shape->n_used);
    float *keep = r->before;
    r->before = r->hidden;
    r->hidden = keep;
}

static void finish_facts(struct sample_facts *f, uint32_t n)
{
    for (size_t i = 0; i < (size_t)f->n_layers * f->d_model; i++) {
        f->mean[i] /= n;
        double variance = f->deviation[i] / n - f->mean[i] * f->mean[i];
        f->deviation[i] = variance > 1e-12 ? sqrt(variance) : 1e-6;
    }
    for (uint32_t i = 0; i < f->n_layers; i++) {
        f->similarity[i] /= n;
        f->skew[i] /= n;
    }
}

enum error_code sample_facts_new(const struct samples *s, bool (*go_on)(void *arg), void *arg,
                                 struct sample_facts *out, struct error *e)
{
    const struct trace_shape *shape = trace_shape(s->trace);
    struct sample_facts f = {
        .n_layers = shape->n_layers, .d_model = shape->d_model, .n_experts = shape->n_experts};
    size_t n = (size_t)f.n_layers * f.d_model;
    f.memory = ARRAYS_NEW(ARRAY(f.mean, n), ARRAY(f.deviation, n),
                          ARRAY(f.counts, (size_t)f.n_layers * f.n_experts));
    f.similarity = calloc(f.n_layers, sizeof *f.similarity);
    f.skew = calloc(f.n_layers, sizeof *f.skew);
    struct reader r = {0};
    void *buffers = ARRAYS_NEW(ARRAY(r.hidden, f.d_model), ARRAY(r.before, f.d_model),
                               ARRAY(r.gate, f.n_experts), ARRAY(r.selected, shape->n_used));
    enum error_code code = ERROR_OK;
    if (!f.memory || !f.similarity || !f.skew || !buffers)
        code = error_set(e, ERROR_MEMORY, "no memory for the means of %u layers", f.n_layers);
    for (uint32_t i = 0; !code && i < s->n_train; i++) {
        for (uint32_t layer = shape->first_layer; layer < f.n_layers; layer++)
            add_fact(&f, s, i, layer, &r);
        if (go_on && i % ROWS_BETWEEN_CALLS == 0 && !go_on(arg))
            code = error_set(e, ERROR_CANCELLED, "interrupted");
    }
    free(buffers);
    if (code) {
        sample_facts_free(&f);
        return code;
    }
    finish_facts(&f, s->n_train);
    *out = f;
    return ERROR_OK;
}

void sample_facts_free(struct sample_facts *f)
{
    free(f->memory);
    free(f->similarity);
    free(f->skew);
    *f = (struct sample_facts){0};
}
