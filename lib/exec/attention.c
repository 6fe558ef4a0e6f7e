/* Attention on a pool of threads; see attention.h.
 *
 * A tile is a few rows of one request that share the keys and values read. A unit is a tile's
 * queries of one KV head, or a part of them: at most ATTEND_QUERIES. The threads process the blocks
 * of positions in one of two ways:
 *   - by unit: a thread computes all blocks of a unit and merges each at once;
 *   - by wave, if a few units have most of the work (one long request, few KV heads): the threads
 *     compute single blocks of a wave into slots, then merge each unit's blocks in order. */
#include "exec/attention.h"

#include "base/checked.h"

#include <stdlib.h>

/* Blocks of a wave for each thread: enough that the wait for the last one is short in comparison.
 */
#define SLOTS_A_THREAD 16
/* A unit of fewer queries would share too few reads. */
#define FEWEST_QUERIES 4

/* Rows [row, row + n_rows) of the batch, which attend to positions of blocks [first_block,
 * end_block). */
struct attention_tile {
    uint32_t row, n_rows;
    uint32_t first_block, end_block;
};

struct attention {
    struct pool *pool;
    const struct kernels *kernels;
    uint32_t n_slots;
    uint8_t *scratch;             /* [threads][scratch_bytes], for the kernels */
    size_t scratch_bytes;         /* of one thread */
    size_t value_floats;          /* max_v_dim rounded up to 16 */
    float *values;                /* [n_slots][ATTEND_QUERIES][value_floats] */
    struct attend_part *parts;    /* [n_slots][ATTEND_QUERIES]; their values lie in `values` */
    struct attend_part *sums;     /* [max_rows][max_heads]: of the blocks so far; values in `out` */
    struct attention_tile *tiles; /* [max_rows] */
    /* the current call */
    const struct attention_row *rows;
    struct attention_shape shape;
    const float *q, *sinks;
    uint32_t n_tiles, heads_a_unit, units_a_head, n_units;
    uint32_t first_block, end_block; /* of all tiles */
    uint32_t wave_first, wave_blocks;
};

static void *allocate(size_t bytes)
{
    return aligned_alloc(64, round_up(bytes ? bytes : 1, 64));
}

/* Points each part at its values. A slot's values are first written when a wave uses it. */
static void bind_slots(struct attention *a)
{
    for (size_t i = 0; i < (size_t)a->n_slots * ATTEND_QUERIES; i++)
        a->parts[i] = (struct attend_part){.values = a->values + i * a->value_floats};
}

enum error_code attention_new(struct pool *pool, uint32_t max_heads, uint32_t max_k_dim,
                              uint32_t max_v_dim, uint32_t max_rows, struct attention **out,
                              struct error *e)
{
    struct attention *a = calloc(1, sizeof *a);
    unsigned threads = pool_thread_count(pool);
    if (a) {
        a->pool = pool;
        a->kernels = kernels_get();
        a->n_slots = threads * SLOTS_A_THREAD;
        a->scratch_bytes = round_up(a->kernels->attend_scratch(max_k_dim, max_v_dim), 64);
        a->scratch = allocate(threads * a->scratch_bytes);
        a->value_floats = round_up(max_v_dim, 16);
        a->values = allocate((size_t)a->n_slots * ATTEND_QUERIES * a->value_floats * sizeof(float));
        a->parts = calloc((size_t)a->n_slots * ATTEND_QUERIES, sizeof *a->parts);
        a->sums = calloc((size_t)max_rows * max_heads, sizeof *a->sums);
        a->tiles = calloc(max_rows, sizeof *a->tiles);
    }
    if (!a || !a->scratch || !a->values || !a->parts || !a->sums || !a->tiles) {
        attention_free(a);
        return error_set(e, ERROR_MEMORY, "no memory for the attention of %u tokens", max_rows);
    }
    bind_slots(a);
    *out = a;
    return ERROR_OK;
}

void attention_free(struct attention *a)
{
    if (!a)
        return;
    free(a->scratch);
    free(a->values);
    free(a->parts);
    free(a->sums);
    free(a->tiles);
    free(a);
}

/* ---- Units ---- */

static void cut_tiles(struct attention *a, uint32_t n_rows, uint32_t rows_a_tile)
{
    a->n_tiles = 0;
    a->first_block = UINT32_MAX;
    a->end_block = 0;
    for (uint32_t row = 0; row < n_rows;) {
        struct attention_tile t = {row, 0, UINT32_MAX, 0};
        for (; row < n_rows && t.n_rows < rows_a_tile && a->rows[row].pages == a->rows[t.row].pages;
             row++, t.n_rows++) {
            uint32_t first = a->rows[row].first / ATTEND_BLOCK;
            uint32_t end = (a->rows[row].end + ATTEND_BLOCK - 1) / ATTEND_BLOCK;
            t.first_block = first < t.first_block ? first : t.first_block;
            t.end_block = end > t.end_block ? end : t.end_block;
        }
        a->first_block = t.first_block < a->first_block ? t.first_block : a->first_block;
        a->end_block = t.end_block > a->end_block ? t.end_block : a->end_block;
        a->tiles[a->n_tiles++] = t;
    }
}

/* Cuts the batch into units of up to ATTEND_QUERIES queries; of fewer if threads would be idle. */
static void cut_units(struct attention *a, uint32_t n_rows)
{
    const struct attention_shape *s = &a->shape;
    uint32_t group = s->n_heads / s->n_kv_heads, threads = pool_active_count(a->pool);
    for (uint32_t most = ATTEND_QUERIES;; most /= 2) {
        a->units_a_head = (group + most - 1) / most;
        a->heads_a_unit = (group + a->units_a_head - 1) / a->units_a_head;
        cut_tiles(a, n_rows, most / a->heads_a_unit);
        a->n_units = a->n_tiles * s->n_kv_heads * a->units_a_head;
        if (most <= FEWEST_QUERIES || a->n_units * (a->end_block - a->first_block) >= 2 * threads)
            return;
    }
}

struct attention_unit {
    const struct attention_tile *tile;
    struct kv_head kv;
    uint32_t n;
    struct attend_query queries[ATTEND_QUERIES];
    struct attend_part *sums[ATTEND_QUERIES];
    uint32_t heads[ATTEND_QUERIES];
};

static void find_unit(const struct attention *a, uint32_t index, struct attention_unit *u)
{
    const struct attention_shape *s = &a->shape;
    uint32_t group = s->n_heads / s->n_kv_heads, part = index % a->units_a_head;
    uint32_t kv_head = index / a->units_a_head % s->n_kv_heads;
    uint32_t first = part * a->heads_a_unit, end = first + a->heads_a_unit;
    u->tile = &a->tiles[index / a->units_a_head / s->n_kv_heads];
    const struct attention_row *row = &a->rows[u->tile->row];
    size_t keys_offset = s->layer_offset + kv_head * s->head_stride;
    u->kv = (struct kv_head){s->type,       s->k_dim,       s->v_dim,
                             row->pages,    keys_offset,    keys_offset + s->values_offset,
                             s->key_stride, s->value_stride};
    u->n = 0;
    for (uint32_t r = 0; r < u->tile->n_rows; r++, row++)
        for (uint32_t i = first; i < end && i < group; i++) {
            uint32_t head = kv_head * group + i;
            size_t at = (size_t)(u->tile->row + r) * s->n_heads + head;
            u->queries[u->n] = (struct attend_query){a->q + at * s->k_dim, row->first, row->end};
            u->heads[u->n] = head;
            u->sums[u->n++] = &a->sums[at];
        }
}

static void compute_block(const struct attention *a, const struct attention_unit *u,
                          unsigned thread, uint32_t block, struct attend_part *parts)
{
    a->kernels->attend_block(&u->kv, block, a->shape.scale, u->queries, u->n,
                             a->scratch + thread * a->scratch_bytes, parts);
}

static void merge_block(const struct attention *a, const struct attention_unit *u,
                        const struct attend_part *parts)
{
    for (uint32_t i = 0; i < u->n; i++)
        a->kernels->attend_merge(u->sums[i], &parts[i], a->shape.v_dim);
}

static void finish_unit(const struct attention *a, const struct attention_unit *u)
{
    for (uint32_t i = 0; i < u->n; i++)
        a->kernels->attend_finish(u->sums[i], a->sinks ? &a->sinks[u->heads[i]] : NULL,
                                  a->shape.v_dim);
}

/* ---- A unit at a time ---- */

/* Starts with the last rows of a prompt: they have most positions. */
static void run_unit(void *arg, unsigned thread, uint32_t chunk)
{
    const struct attention *a = arg;
    struct attend_part *parts = a->parts + (size_t)thread * ATTEND_QUERIES;
    struct attention_unit u;
    find_unit(a, a->n_units - 1 - chunk, &u);
    for (uint32_t block = u.tile->first_block; block < u.tile->end_block; block++) {
        compute_block(a, &u, thread, block, parts);
        merge_block(a, &u, parts);
    }
    finish_unit(a, &u);
}

/* ---- Blocks at a time ---- */

static struct attend_part *wave_slot(const struct attention *a, uint32_t unit, uint32_t block)
{
    size_t slot = (size_t)unit * a->wave_blocks + (block - a->wave_first);
    return a->parts + slot * ATTEND_QUERIES;
}

static bool tile_has(const struct attention_tile *t, uint32_t block)
{
    return block >= t->first_block && block < t->end_block;
}

/* Chunks run through all units of a block before the next block, so that the units of one KV head
 * find its rows in the shared caches. */
static void run_block(void *arg, unsigned thread, uint32_t chunk)
{
    const struct attention *a = arg;
    uint32_t unit = chunk % a->n_units, block = a->wave_first + chunk / a->n_units;
    struct attention_unit u;
    find_unit(a, unit, &u);
    if (tile_has(u.tile, block))
        compute_block(a, &u, thread, block, wave_slot(a, unit, block));
}

static void merge_wave(void *arg, unsigned thread, uint32_t chunk)
{
    const struct attention *a = arg;
    struct attention_unit u;
    (void)thread;
    find_unit(a, chunk, &u);
    for (uint32_t i = 0; i < a->wave_blocks; i++)
        if (tile_has(u.tile, a->wave_first + i))
            merge_block(a, &u, wave_slot(a, chunk, a->wave_first + i));
    if (a->wave_first + a->wave_blocks >= a->end_block)
        finish_unit(a, &u);
}

static void run_waves(struct attention *a)
{
    a->wave_blocks = a->n_slots / a->n_units;
    for (a->wave_first = a->first_block; a->wave_first < a->end_block;
         a->wave_first += a->wave_blocks) {
        uint32_t left = a->end_block - a->wave_first;
        uint32_t blocks = left < a->wave_blocks ? left : a->wave_blocks;
        pool_run(a->pool, run_block, a, blocks * a->n_units);
        pool_run(a->pool, merge_wave, a, a->n_units);
    }
}

/* True: one unit has so large a part of the work that the other threads would wait for it. */
static bool wants_waves(const struct attention *a)
{
    uint64_t total = 0, most = 0, threads = pool_active_count(a->pool);
    for (uint32_t i = 0; i < a->n_tiles; i++) {
        uint32_t blocks = a->tiles[i].end_block - a->tiles[i].first_block;
        total += blocks;
        most = blocks > most ? blocks : most;
    }
    total *= a->n_units / a->n_tiles;
    return threads > 1 && most > 1 && a->n_units <= a->n_slots && 4 * threads * most > total;
}

void attention_run(struct attention *a, const struct attention_shape *shape,
                   const struct attention_row *rows, uint32_t n_rows, const float *q,
                   const float *sinks, float *out)
{
    size_t n_sums = (size_t)n_rows * shape->n_heads;
    if (n_rows == 0)
        return;
    a->rows = rows;
    a->shape = *shape;
    a->q = q;
    a->sinks = sinks;
    for (size_t i = 0; i < n_sums; i++)
        a->sums[i] = (struct attend_part){.values = out + i * a->shape.v_dim};
    cut_units(a, n_rows);
    if (wants_waves(a))
        run_waves(a);
    else
        pool_run(a->pool, run_unit, a, a->n_units);
}
