/* Random rows, quantised in parallel; see generate.h.
 *
 * A tensor's rows are cut in chunks, numbered through all tensors. Worker threads claim chunk after
 * chunk and fill slot (number % slots); the calling thread waits for chunk 0, 1, ... and delivers
 * it. Invariants, under the mutex:
 * 1. claimed < delivered + slots: a slot is filled only after its last chunk was delivered.
 * 2. slot.ready means that chunk number `delivered`..claimed-1 of that slot is complete, and that
 * only the delivering thread touches it. */
#include "mkmodel/generate.h"

#include "mkmodel/random.h"
#include "quant/quant.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CHUNK_VALUES (1 << 19) /* some milliseconds of work, 2 MiB of float32 */
#define MAX_THREADS  256

struct slot {
    uint8_t *data;
    size_t bytes;
    uint64_t tensor;
    bool ready;
};

struct generator {
    const struct plan *plan;
    pthread_mutex_t mutex;
    pthread_cond_t slot_free, slot_ready;
    struct slot *slots;
    uint64_t slot_count;
    uint64_t claimed, delivered;    /* chunks */
    uint64_t next_tensor, next_row; /* of the next chunk to claim */
    bool stop;
    float *rows_scratch; /* one row of values per thread */
    uint64_t max_columns;
    uint32_t thread_count;
    pthread_t threads[MAX_THREADS];
    uint32_t scratch_taken;
};

struct chunk {
    uint64_t tensor, row, rows, number;
};

static uint64_t chunk_rows(const struct planned_tensor *t)
{
    uint64_t rows = CHUNK_VALUES / t->ne[0];
    return rows ? rows : 1;
}

/* Waits for a free slot. False: no work remains. */
static bool claim(struct generator *g, struct chunk *c)
{
    pthread_mutex_lock(&g->mutex);
    while (!g->stop && g->claimed >= g->delivered + g->slot_count)
        pthread_cond_wait(&g->slot_free, &g->mutex);
    bool any = !g->stop && g->next_tensor < g->plan->count;
    if (any) {
        const struct planned_tensor *t = &g->plan->tensors[g->next_tensor];
        uint64_t rows = chunk_rows(t), left = t->rows - g->next_row;
        *c = (struct chunk){g->next_tensor, g->next_row, rows < left ? rows : left, g->claimed++};
        g->next_row += c->rows;
        if (g->next_row == t->rows) {
            g->next_tensor++;
            g->next_row = 0;
        }
    }
    pthread_mutex_unlock(&g->mutex);
    return any;
}

static void fill_factors(const struct planned_tensor *t, float *values)
{
    for (uint64_t i = 0; i < t->ne[0]; i++)
        values[i] = mkmodel_factor(t->factor, i);
}

static void divide(float *values, uint64_t n, float by)
{
    for (uint64_t i = 0; i < n; i++)
        values[i] /= by;
}

static void fill(const struct generator *g, const struct chunk *c, uint8_t *out, float *values)
{
    const struct planned_tensor *t = &g->plan->tensors[c->tensor];
    for (uint64_t i = 0; i < c->rows; i++) {
        struct random r;
        random_seed(&r, g->plan->options.seed, t->name, c->row + i);
        if (t->scale)
            fill_factors(t, values);
        else {
            random_bell(&r, t->mean, t->deviation, values, (size_t)t->ne[0]);
            if (t->factor != 0)
                divide(values, t->ne[0], mkmodel_factor(t->factor, (c->row + i) / t->ne[1]));
        }
        quant_quantize(t->type, values, out + i * t->row_bytes, (size_t)t->ne[0]);
    }
}

static void *work(void *arg)
{
    struct generator *g = arg;
    struct chunk c;
    pthread_mutex_lock(&g->mutex);
    float *values = g->rows_scratch + g->scratch_taken++ * g->max_columns;
    pthread_mutex_unlock(&g->mutex);
    while (claim(g, &c)) {
        struct slot *s = &g->slots[c.number % g->slot_count];
        fill(g, &c, s->data, values);
        pthread_mutex_lock(&g->mutex);
        s->bytes = (size_t)(c.rows * g->plan->tensors[c.tensor].row_bytes);
        s->tensor = c.tensor;
        s->ready = true;
        pthread_cond_signal(&g->slot_ready);
        pthread_mutex_unlock(&g->mutex);
    }
    return NULL;
}

static bool allocate(struct generator *g, uint32_t threads)
{
    uint64_t chunk_bytes = 0;
    for (uint64_t i = 0; i < g->plan->count; i++) {
        const struct planned_tensor *t = &g->plan->tensors[i];
        uint64_t bytes = chunk_rows(t) * t->row_bytes;
        chunk_bytes = bytes > chunk_bytes ? bytes : chunk_bytes;
        g->max_columns = t->ne[0] > g->max_columns ? t->ne[0] : g->max_columns;
    }
    g->slot_count = 2 * (uint64_t)threads;
    g->rows_scratch = calloc((size_t)threads * (size_t)g->max_columns, sizeof *g->rows_scratch);
    g->slots = calloc((size_t)g->slot_count, sizeof *g->slots);
    if (!g->rows_scratch || !g->slots)
        return false;
    for (uint64_t i = 0; i < g->slot_count; i++) {
        g->slots[i].data = malloc((size_t)chunk_bytes);
        if (!g->slots[i].data)
            return false;
    }
    return true;
}

static void release(struct generator *g)
{
    for (uint64_t i = 0; g->slots && i < g->slot_count; i++)
        free(g->slots[i].data);
    free(g->slots);
    free(g->rows_scratch);
}

/* Starts as many of the threads as the system allows. Needs at least one. */
static enum error_code start_threads(struct generator *g, uint32_t threads, struct error *e)
{
    int failed = 0;
    while (g->thread_count < threads && !failed) {
        failed = pthread_create(&g->threads[g->thread_count], NULL, work, g);
        if (!failed)
            pthread_setname_np(g->threads[g->thread_count++], "mkmodel");
    }
    if (g->thread_count == 0)
        return error_set(e, ERROR_UNAVAILABLE, "no thread could be started: %s", strerror(failed));
    return ERROR_OK;
}

static void stop_threads(struct generator *g)
{
    pthread_mutex_lock(&g->mutex);
    g->stop = true;
    pthread_cond_broadcast(&g->slot_free);
    pthread_mutex_unlock(&g->mutex);
    for (uint32_t i = 0; i < g->thread_count; i++)
        pthread_join(g->threads[i], NULL);
}

static uint64_t count_chunks(const struct plan *p)
{
    uint64_t chunks = 0;
    for (uint64_t i = 0; i < p->count; i++) {
        uint64_t rows = chunk_rows(&p->tensors[i]);
        chunks += (p->tensors[i].rows + rows - 1) / rows;
    }
    return chunks;
}

enum error_code generate_tensors(const struct plan *p, uint32_t threads,
                                 enum error_code (*deliver)(uint64_t tensor, const void *data,
                                                            size_t len, void *arg, struct error *e),
                                 void *arg, struct error *e)
{
    struct generator g = {.plan = p};
    if (threads == 0) {
        long cores = sysconf(_SC_NPROCESSORS_ONLN);
        threads = cores > 0 ? (uint32_t)cores : 1;
    }
    if (threads > MAX_THREADS)
        threads = MAX_THREADS;
    if (!allocate(&g, threads)) {
        release(&g);
        return error_set(e, ERROR_MEMORY, "no memory to make rows with %u threads", threads);
    }
    pthread_mutex_init(&g.mutex, NULL);
    pthread_cond_init(&g.slot_free, NULL);
    pthread_cond_init(&g.slot_ready, NULL);
    enum error_code code = start_threads(&g, threads, e);
    uint64_t chunks = count_chunks(p);
    for (uint64_t n = 0; n < chunks && code == ERROR_OK; n++) {
        struct slot *s = &g.slots[n % g.slot_count];
        pthread_mutex_lock(&g.mutex);
        while (!s->ready)
            pthread_cond_wait(&g.slot_ready, &g.mutex);
        pthread_mutex_unlock(&g.mutex);
        code = deliver(s->tensor, s->data, s->bytes, arg, e);
        pthread_mutex_lock(&g.mutex);
        s->ready = false;
        g.delivered++;
        pthread_cond_signal(&g.slot_free);
        pthread_mutex_unlock(&g.mutex);
    }
    stop_threads(&g);
    pthread_cond_destroy(&g.slot_ready);
    pthread_cond_destroy(&g.slot_free);
    pthread_mutex_destroy(&g.mutex);
    release(&g);
    return code;
}
