/* Routed experts on a pool of threads; see exec.h.
 *
 * A call consists of parts (one segment of one task) and runs in two steps. All threads share each
 * step by chunks of rows, so that one expert keeps all cores busy and many finish together.
 *   1. Gate (where there is one) and up: multiply, add biases, activate. The result is the part's
 * hidden values. If the down matrix is quantised, they are quantised too: by the thread that
 * computed the whole part, or between the steps if several threads did.
 *   2. Down: the segments of each task in order, combined as its output says.
 * With few tokens most parts are one chunk; its thread reads gate and up as one matrix. */
#include "exec/internal.h"

#include "base/checked.h"

#include <stdlib.h>
#include <string.h>

#define FEW_ROWS 4

static size_t part_stride(const struct expert_part *part)
{
    return round_up(part->segment.gate.rows, TILE_ROWS);
}

static bool is_whole(const struct expert_part *p, const struct exec_chunk *c)
{
    return c->tile_count == tile_row_count(p->segment.gate.rows);
}

static void quantize_hidden(const struct exec *x, struct expert_part *p)
{
    if (exec_quantizes(p->segment.down.type))
        x->kernels->quantize(&p->h, 0, p->task->n_tokens);
}

/* Gate and up as one matrix of twice the rows, which one token reads faster than two matrices.
 * False: the two are not adjacent or differ in type, or there is no gate. */
static bool gate_and_up(const struct expert_segment *s, struct matrix *both)
{
    *both = s->gate;
    both->rows = 2 * round_up(s->gate.rows, TILE_ROWS);
    return s->gate.tiles && s->gate.type == s->up.type &&
           s->up.tiles == (const uint8_t *)s->gate.tiles +
                              tile_matrix_bytes(s->gate.type, s->gate.rows, s->gate.cols);
}

static void up_chunk(void *arg, unsigned thread, uint32_t index)
{
    struct exec *x = arg;
    const struct exec_chunk *c = &x->chunks[index];
    struct expert_part *p = &x->parts[c->product];
    const struct expert_task *t = p->task;
    const struct expert_segment *s = &p->segment;
    size_t stride = part_stride(p);
    float *gate = x->gate_up + 2 * p->hidden, *up = gate + stride, *hidden = x->hidden + p->hidden;
    const struct exec_rows in = {x->input, t->tokens, 0, t->n_tokens};
    struct matrix both;
    if (t->n_tokens == 1 && is_whole(p, c) && gate_and_up(s, &both)) {
        exec_multiply_part(x, thread, &both, 0, 2 * c->tile_count, &in, t->tokens, gate, 2 * stride,
                           false);
    } else {
        if (s->gate.tiles)
            exec_multiply_part(x, thread, &s->gate, c->tile_first, c->tile_count, &in, t->tokens,
                               gate, 2 * stride, false);
        else
            gate = up;
        exec_multiply_part(x, thread, &s->up, c->tile_first, c->tile_count, &in, t->tokens, up,
                           2 * stride, false);
    }
    size_t first = (size_t)c->tile_first * TILE_ROWS;
    size_t n = (size_t)c->tile_count * TILE_ROWS;
    if (first + n > s->gate.rows)
        n = s->gate.rows - first;
    for (uint32_t i = 0; i < t->n_tokens; i++) {
        size_t at = i * 2 * stride + first;
        if (s->gate_bias) {
            x->kernels->add(s->gate_bias + first, gate + at, n);
            x->kernels->add(s->up_bias + first, up + at, n);
        }
        x->kernels->gated(x->gating, gate + at, up + at, hidden + i * stride + first, n);
    }
    if (is_whole(p, c))
        quantize_hidden(x, p);
}

static void quantize_part(void *arg, unsigned thread, uint32_t index)
{
    struct exec *x = arg;
    (void)thread;
    quantize_hidden(x, &x->parts[x->cut_parts[index]]);
}

static void down_chunk(void *arg, unsigned thread, uint32_t index)
{
    struct exec *x = arg;
    const struct exec_chunk *c = &x->chunks[index];
    const struct expert_part *p = &x->parts[c->product];
    const struct expert_task *t = p->task;
    for (uint32_t s = 0; s < t->n_segments; s++) {
        size_t apart =
            t->output == EXPERT_APART ? (size_t)s * t->n_tokens * p->segment.down.rows : 0;
        bool add = t->output == EXPERT_CONTINUE || (t->output == EXPERT_SUM && s > 0);
        const struct exec_rows in = {&p[s].h, NULL, 0, t->n_tokens};
        exec_multiply_part(x, thread, &p[s].segment.down, c->tile_first, c->tile_count, &in,
                           t->tokens, t->out + apart, p->segment.down.rows, add);
    }
}

static const uint8_t *place_of(const struct pool_map *map, uint32_t layer,
                               const struct expert_task *t, uint32_t s)
{
    if (t->places)
        return t->places[s];
    if (t->slab)
        return t->slab + (t->first_segment + s) * map->slabs[layer].segment_bytes;
    return pool_map_segment_place(map, layer, t->expert, t->first_segment + s);
}

/* Adds the parts of one task. Their hidden values follow each other in the scratch. */
static void add_parts(struct exec *x, const struct pool_map *map, uint32_t layer,
                      const struct expert_task *t, size_t *hidden, size_t *memory)
{
    for (uint32_t s = 0; s < t->n_segments; s++) {
        struct expert_part *p = &x->parts[x->n_parts++];
        p->task = t;
        p->number = t->first_segment + s;
        p->segment = pool_segment_at(&map->slabs[layer], place_of(map, layer, t, s));
        p->hidden = *hidden;
        *hidden += part_stride(p) * t->n_tokens;
        size_t bytes = exec_quantizes(p->segment.down.type)
                           ? round_up(act_bytes(p->segment.down.cols, t->n_tokens), TILE_ALIGN)
                           : 0;
        if (*memory + bytes > x->hidden_bytes)
            abort(); /* our bug: allocate_all computes too little for some shape */
        act_bind(&p->h, (uint8_t *)x->hidden_memory + *memory, p->segment.down.cols, t->n_tokens,
                 x->hidden + p->hidden, part_stride(p));
        *memory += bytes;
    }
}

/* The product that begins with part i: gate and up of the part, or down of its task. */
static const struct matrix *product_of(const struct exec *x, uint32_t i, bool down)
{
    const struct expert_segment *s = &x->parts[i].segment;
    return down ? &s->down : &s->gate;
}

static uint32_t parts_of_product(const struct exec *x, uint32_t i, bool down)
{
    return down ? x->parts[i].task->n_segments : 1;
}

/* Tile rows [first, end) of the product that begins with part i, on a node. */
struct rows_on_node {
    uint32_t first, end;
};

static struct rows_on_node rows_on_node(const struct exec *x, uint32_t i, bool down, unsigned node)
{
    const struct expert_part *p = &x->parts[i];
    struct numa_split split = x->split;
    uint32_t n_tiles = tile_row_count(product_of(x, i, down)->rows);
    if (split.n_nodes == 1)
        return (struct rows_on_node){0, n_tiles};
    if (down && split.n_segments > 1)
        split.by_rows = true; /* its segments lie on several nodes */
    if ((uint64_t)x->n_parts * numa_slices(&split, n_tiles) > EXEC_MAX_SLICES)
        split.by_rows = false; /* with so many parts all nodes have enough to do */
    uint32_t slices = numa_slices(&split, n_tiles);
    unsigned of_first = down ? numa_down_node(&split, p->task->expert, slices)
                             : numa_gate_node(&split, p->task->expert, p->number, slices);
    uint32_t slice = (node + split.n_nodes - of_first) % split.n_nodes;
    if (slice >= slices)
        return (struct rows_on_node){0, 0};
    return (struct rows_on_node){numa_first_tile(n_tiles, slices, slice),
                                 numa_first_tile(n_tiles, slices, slice + 1)};
}

static void cut_for_node(struct exec *x, unsigned node, bool down)
{
    uint64_t tiles = 0, by_tokens = 0;
    for (uint32_t i = 0; i < x->n_parts; i += parts_of_product(x, i, down)) {
        struct rows_on_node r = rows_on_node(x, i, down, node);
        tiles += r.end - r.first;
        by_tokens += (uint64_t)(r.end - r.first) * x->parts[i].task->n_tokens;
    }
    struct exec_cutting cutting = exec_cut_begin(pool_threads_on(x->pool, node), tiles, by_tokens);
    for (uint32_t i = 0; i < x->n_parts; i += parts_of_product(x, i, down)) {
        struct rows_on_node r = rows_on_node(x, i, down, node);
        exec_cut_product(x, &cutting, i, product_of(x, i, down), r.first, r.end,
                         x->parts[i].task->n_tokens);
    }
}

void exec_cut_experts(struct exec *x, bool down)
{
    unsigned n_nodes = x->split.n_nodes;
    x->n_chunks = 0;
    for (unsigned node = 0; node < n_nodes; node++) {
        x->first_chunk[node] = x->n_chunks;
        cut_for_node(x, node, down);
    }
    x->first_chunk[n_nodes] = x->n_chunks;
}

/* Quantises the parts that several threads computed. The caller does a few rows itself, because
 * other threads would take longer to wake. */
static void quantize_cut_parts(struct exec *x)
{
    uint32_t n = 0, n_rows = 0;
    for (uint32_t c = 0; c < x->n_chunks; c++) {
        const struct exec_chunk *chunk = &x->chunks[c];
        struct expert_part *p = &x->parts[chunk->product];
        if (is_whole(p, chunk) || chunk->tile_first > 0)
            continue;
        x->cut_parts[n++] = chunk->product;
        n_rows += p->task->n_tokens;
    }
    if (n_rows > FEW_ROWS)
        pool_run(x->pool, quantize_part, x, n);
    else
        for (uint32_t i = 0; i < n; i++)
            quantize_part(x, 0, i);
}

static void run_pass(struct exec *x)
{
    unsigned n_nodes = x->split.n_nodes;
    x->step++;
    exec_cut_experts(x, false);
    pool_run_by_node(x->pool, up_chunk, x, x->first_chunk, n_nodes);
    quantize_cut_parts(x);
    exec_cut_experts(x, true);
    x->step++;
    pool_run_by_node(x->pool, down_chunk, x, x->first_chunk, n_nodes);
}

void exec_experts(struct exec *x, const struct pool_map *map, uint32_t layer,
                  const struct activations *a, const struct expert_task *tasks, uint32_t n_tasks)
{
    x->input = a;
    x->split = (struct numa_split){pool_node_count(x->pool), map->slabs[layer].n_segments,
                                   map->header && map->header->split_rows};
    x->gating = params_expert_gating(&map->params, layer);
    for (uint32_t first = 0; first < n_tasks;) {
        size_t hidden = 0, memory = 0;
        x->n_parts = 0;
        uint32_t i = first;
        for (; i < n_tasks && x->n_parts + tasks[i].n_segments <= EXEC_MAX_PARTS; i++)
            add_parts(x, map, layer, &tasks[i], &hidden, &memory);
        run_pass(x);
        first = i;
    }
}
