/* Routed experts on a pool of threads; see exec.h.
 *
 * A call is cut into parts (one segment of one task) and runs in three steps, each spread over all threads
 * by chunks of rows, so that one expert keeps all cores busy and many finish together:
 *   1. gate and up rows of every part, multiplied, biases added, activated: hidden values;
 *   2. hidden values quantised, where the down matrix is;
 *   3. down rows of every task: its segments in order, as its output says.
 */
#include "exec/internal.h"

#include "base/checked.h"
#include "exec/numa.h"

#include <stdlib.h>
#include <string.h>

static size_t part_stride(const struct expert_part *part)
{
    return round_up(part->segment.gate.rows, TILE_ROWS);
}

static void up_chunk(void *arg, unsigned thread, uint32_t index)
{
    struct exec *x = arg;
    const struct expert_chunk *c = &x->chunks[index];
    const struct expert_part *p = &x->parts[c->part];
    const struct expert_task *t = p->task;
    size_t stride = part_stride(p);
    float *gate = x->gate + p->hidden, *up = x->up + p->hidden, *hidden = x->hidden + p->hidden;
    const struct expert_segment *s = &p->segment;
    exec_multiply_part(x, thread, &s->gate, c->tile_first, c->tile_count, x->input, t->tokens,
                       t->n_tokens, gate, stride, false);
    exec_multiply_part(x, thread, &s->up, c->tile_first, c->tile_count, x->input, t->tokens,
                       t->n_tokens, up, stride, false);
    size_t first = (size_t)c->tile_first * TILE_ROWS;
    size_t n = (size_t)c->tile_count * TILE_ROWS;
    if (first + n > s->gate.rows)
        n = s->gate.rows - first;
    for (uint32_t i = 0; i < t->n_tokens; i++) {
        size_t at = i * stride + first;
        if (s->gate_bias) {
            x->kernels->add(s->gate_bias + first, gate + at, n);
            x->kernels->add(s->up_bias + first, up + at, n);
        }
        x->kernels->gated(x->activation, gate + at, up + at, hidden + at, n);
    }
}

static void quantize_part(void *arg, unsigned thread, uint32_t index)
{
    struct exec *x = arg;
    struct expert_part *p = &x->parts[index];
    (void)thread;
    if (exec_quantizes(p->segment.down.type))
        x->kernels->quantize(&p->h, 0, p->task->n_tokens);
}

static void down_chunk(void *arg, unsigned thread, uint32_t index)
{
    struct exec *x = arg;
    const struct expert_chunk *c = &x->chunks[index];
    const struct expert_part *p = &x->parts[c->part];
    const struct expert_task *t = p->task;
    for (uint32_t s = 0; s < t->n_segments; s++) {
        size_t apart =
            t->output == EXPERT_APART ? (size_t)s * t->n_tokens * p->segment.down.rows : 0;
        bool add = t->output == EXPERT_CONTINUE || (t->output == EXPERT_SUM && s > 0);
        exec_multiply_part(x, thread, &p[s].segment.down, c->tile_first, c->tile_count, &p[s].h,
                           NULL, t->n_tokens, t->out + apart, p->segment.down.rows, add);
    }
}

static void add_chunks(struct exec *x, uint32_t part, uint32_t rows)
{
    uint32_t n_tiles = tile_row_count(rows);
    uint32_t step = exec_tiles_a_chunk(x, n_tiles);
    while ((n_tiles + step - 1) / step > EXEC_MAX_CHUNKS / EXEC_MAX_PARTS)
        step *= 2;
    for (uint32_t first = 0; first < n_tiles; first += step)
        x->chunks[x->n_chunks++] =
            (struct expert_chunk){part, first, n_tiles - first < step ? n_tiles - first : step};
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

/* The parts of one task; their hidden values follow each other in the scratch. */
static void add_parts(struct exec *x, const struct pool_map *map, uint32_t layer,
                      const struct expert_task *t, size_t *hidden, size_t *memory)
{
    for (uint32_t s = 0; s < t->n_segments; s++) {
        struct expert_part *p = &x->parts[x->n_parts++];
        p->task = t;
        p->segment = pool_segment_at(&map->slabs[layer], place_of(map, layer, t, s));
        p->hidden = *hidden;
        *hidden += part_stride(p) * t->n_tokens;
        size_t bytes = exec_quantizes(p->segment.down.type)
                           ? round_up(act_bytes(p->segment.down.cols, t->n_tokens), TILE_ALIGN)
                           : 0;
        if (*memory + bytes > x->hidden_bytes)
            abort(); /* allocate_all is wrong about some shape: our bug */
        act_bind(&p->h, (uint8_t *)x->hidden_memory + *memory, p->segment.down.cols, t->n_tokens,
                 x->hidden + p->hidden, part_stride(p));
        *memory += bytes;
    }
}

static bool lies_on(const struct exec *x, const struct expert_part *p, unsigned node)
{
    unsigned n_nodes = pool_node_count(x->pool);
    return n_nodes == 1 || numa_node_of_expert(p->task->expert, x->n_experts, n_nodes) == node;
}

/* Chunks of the gate and up matrices, or of the down ones, by the nodes that these lie on. */
static void cut_into_chunks(struct exec *x, bool down)
{
    unsigned n_nodes = pool_node_count(x->pool);
    x->n_chunks = 0;
    for (unsigned node = 0; node < n_nodes; node++) {
        x->first_chunk[node] = x->n_chunks;
        for (uint32_t i = 0; i < x->n_parts; i += down ? x->parts[i].task->n_segments : 1) {
            const struct expert_segment *s = &x->parts[i].segment;
            if (lies_on(x, &x->parts[i], node))
                add_chunks(x, i, down ? s->down.rows : s->gate.rows);
        }
    }
    x->first_chunk[n_nodes] = x->n_chunks;
}

static void run_pass(struct exec *x)
{
    unsigned n_nodes = pool_node_count(x->pool);
    bool quantizes = false;
    for (uint32_t i = 0; i < x->n_parts; i += x->parts[i].task->n_segments)
        quantizes |= exec_quantizes(x->parts[i].segment.down.type);
    x->step++;
    cut_into_chunks(x, false);
    pool_run_by_node(x->pool, up_chunk, x, x->first_chunk, n_nodes);
    cut_into_chunks(x, true);
    if (quantizes)
        pool_run(x->pool, quantize_part, x, x->n_parts);
    x->step++;
    pool_run_by_node(x->pool, down_chunk, x, x->first_chunk, n_nodes);
}

void exec_experts(struct exec *x, const struct pool_map *map, uint32_t layer,
                  const struct activations *a, const struct expert_task *tasks, uint32_t n_tasks)
{
    x->input = a;
    x->n_experts = map->slabs[layer].n_experts;
    x->activation = map->params.arch->activation;
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
