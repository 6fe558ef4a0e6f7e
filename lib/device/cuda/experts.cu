/* Routed experts, as exec/experts.c computes them: hidden values of every segment of every task
 * (gate and up in one launch where they have one type), quantised where down's type needs it, then
 * the down rows of every task, segments in order. Experts without a gate are up alone.
 *
 * For experts_chosen the device makes the table of work itself; otherwise the host makes passes. A
 * pass is as many tasks, or tokens of one task, as fit into a table of fixed size. The tokens of a
 * task are cut into items; the block of an item decodes the weights once. Passes use the same
 * scratch, one after the other in the stream's order.
 *
 * Float weights have tensor cores for tasks that may round otherwise only. Such tasks have passes
 * of their own. */
#include "device/cuda/choose.cuh"
#include "device/cuda/gate.h"
#include "device/cuda/ops.h"
#include "device/cuda/product.h"

extern "C" {
#include "base/checked.h"
}

#include <string.h>

enum { PASS_ITEMS = 512, PASS_PLACES = 1024, PASS_TOKENS = 4096 };

struct pass {
    uint32_t n_items, n_places, n_tokens;
    uint32_t n_hidden;                   /* hidden rows */
    uint32_t most_segments, most_tokens; /* of an item */
    struct tables {
        struct product_item items[PASS_ITEMS];
        const void *places[PASS_PLACES];
        uint32_t tokens[PASS_TOKENS];
    } tables;
};

/* The position in the tasks: everything before it is in a pass. */
struct progress {
    const struct device_expert_task *tasks;
    uint32_t n_tasks, task, token; /* token: the next one of task */
    uint32_t tokens_an_item;
    bool tensor_cores; /* computed by them, which want whole items */
    bool floats;       /* there are two kinds of tasks: those of this kind have rounds_task(task) */
    bool rounds;
};

static bool rounds_task(const struct device_expert_task *t)
{
    return t->rounds && t->n_tokens >= PRODUCT_FLOAT_MMA_LEAST;
}

/* Adds as many tokens of the task, from `first` on, as fit; returns how many. */
static uint32_t add_task(struct pass *pass, const struct device_expert_task *t, uint32_t first,
                         const struct progress *g)
{
    uint32_t n = t->n_tokens - first, tokens_an_item = g->tokens_an_item;

    if (n > PASS_TOKENS - pass->n_tokens)
        n = PASS_TOKENS - pass->n_tokens;
    if (n > (PASS_ITEMS - pass->n_items) * tokens_an_item)
        n = (PASS_ITEMS - pass->n_items) * tokens_an_item;
    if (n == 0 || t->n_segments > PASS_PLACES - pass->n_places)
        return 0;
    uint32_t n_items = (n + tokens_an_item - 1) / tokens_an_item;
    uint32_t step = g->tensor_cores ? min(n, tokens_an_item) : (n + n_items - 1) / n_items;
    for (uint32_t i = 0; i < n; i += step) {
        struct product_item *item = &pass->tables.items[pass->n_items++];
        item->place = pass->n_places;
        item->n_segments = t->n_segments;
        item->token = pass->n_tokens + i;
        item->n_tokens = n - i < step ? n - i : step;
        item->hidden_row = pass->n_hidden + i;
        item->task_tokens = n;
        item->out_row = t->first_row + first + i;
        item->continues = t->continues;
    }
    memcpy(pass->tables.places + pass->n_places, t->places, t->n_segments * sizeof *t->places);
    memcpy(pass->tables.tokens + pass->n_tokens, t->tokens + first, n * sizeof *t->tokens);
    pass->n_places += t->n_segments;
    pass->n_tokens += n;
    pass->n_hidden += t->n_segments * n;
    if (t->n_segments > pass->most_segments)
        pass->most_segments = t->n_segments;
    if (step > pass->most_tokens)
        pass->most_tokens = step;
    return n;
}

/* False: no task is left. */
static bool next_pass(struct progress *g, struct pass *pass)
{
    memset(pass, 0, offsetof(struct pass, tables));
    while (g->task < g->n_tasks) {
        const struct device_expert_task *t = &g->tasks[g->task];
        bool of_kind = !g->floats || rounds_task(t) == g->rounds;
        if (of_kind && t->n_segments > 0 && g->token < t->n_tokens) {
            uint32_t n = add_task(pass, t, g->token, g);
            g->token += n;
            if (n == 0 || g->token < t->n_tokens)
                return true;
        }
        g->task++;
        g->token = 0;
    }
    return pass->n_items > 0;
}

/* Copies the pass's tables to the device, contiguous, in one copy. */
static bool stage(struct device_stream *s, struct pass *pass, struct product *p)
{
    uint8_t *to = (uint8_t *)&pass->tables;
    size_t places = pass->n_items * sizeof *pass->tables.items;
    size_t tokens = places + pass->n_places * sizeof *pass->tables.places;
    size_t end = tokens + pass->n_tokens * sizeof *pass->tables.tokens;

    memmove(to + places, pass->tables.places, tokens - places);
    memmove(to + tokens, pass->tables.tokens, end - tokens);
    const uint8_t *staged = (const uint8_t *)cuda_stage(s, to, end);
    if (!staged)
        return false;
    p->items = (const struct product_item *)staged;
    p->places = (const uint8_t *const *)(staged + places);
    p->tokens = (const uint32_t *)(staged + tokens);
    p->n_items = pass->n_items;
    p->n_segments = pass->most_segments;
    p->n_tokens = pass->most_tokens;
    return true;
}

static void set_input(struct product *p, const struct device_activations *a)
{
    p->x = a->x;
    p->x_stride = a->x_stride;
    p->q = a->q;
    p->d = a->d;
    p->bias = a->bias;
    p->sum = a->sum;
}

/* A shared expert's product, in the launch of the routed experts' where they may be together. */
static void add_shared_hidden(struct device_stream *s, struct device_shared *shared,
                              const struct device_activations *in, struct product_set *set)
{
    if (!product_pairs(s, shared->gate, shared->up, in)) {
        cuda_multiply_gated(s, shared->gate, shared->up, in, shared->gating, &shared->hidden,
                            shared->up_values);
        return;
    }
    struct product p = product_pair(shared->gate, shared->up, in, shared->gating, &shared->hidden);
    product_add(s, set, shared->gate->type, &p);
}

static void add_shared_down(struct device_stream *s, struct device_shared *shared,
                            struct product_set *set)
{
    struct product p = product_of_matrix(shared->down, &shared->hidden);

    p.out = shared->out;
    p.out_stride = shared->down->rows;
    if (product_prepare(s, shared->down->type, &p))
        product_add(s, set, shared->down->type, &p);
}

/* Computes hidden rows from gate and up. p has the tables. */
static void gate_and_up(struct device_stream *s, const struct device_segments *l, struct product p,
                        struct product_set *set)
{
    int8_t *out_q = p.out_q;

    p.work = PRODUCT_SEGMENTS;
    p.rows = l->width;
    p.cols = l->d_model;
    p.bias_offset = l->bias_offset;
    p.activation = l->activation;
    p.limit = l->limit;
    if (l->up_offset == 0) { /* no gate: whatever the old value is, the activation ignores it */
        p.finish = PRODUCT_GATED;
        product_add(s, set, l->up_type, &p);
        return;
    }
    if (l->gate_type == l->up_type) {
        p.part_bytes = l->up_offset;
        p.finish = PRODUCT_GATED;
        product_add(s, set, l->up_type, &p);
        return;
    }
    p.finish = PRODUCT_SUM;
    p.out_q = NULL;
    product_launch(s, (enum tensor_type)l->gate_type, &p);
    p.offset = l->up_offset;
    p.finish = PRODUCT_GATED;
    p.out_q = out_q;
    product_launch(s, (enum tensor_type)l->up_type, &p);
}

static void down(struct device_stream *s, const struct device_segments *l, struct product p,
                 struct product_set *set)
{
    p.work = PRODUCT_TASKS;
    p.finish = PRODUCT_SUM;
    p.rows = l->d_model;
    p.cols = l->width;
    p.offset = l->down_offset;
    product_add(s, set, l->down_type, &p);
}

static uint32_t hidden_stride(const struct device_segments *l)
{
    return (uint32_t)round_up(l->width, TILE_ROWS);
}

static size_t hidden_bytes(const struct device_segments *l, uint32_t n_rows)
{
    return (size_t)round_up((uint64_t)hidden_stride(l) * n_rows * sizeof(float), TILE_ALIGN);
}

/* Computes the tables of p. n_hidden: number of hidden rows. shared: NULL: none. Hidden values are
 * quantised by the product that makes them, except by tensor cores. */
static void run_tables(struct device_stream *s, const struct device_segments *l,
                       const struct device_activations *in, struct product p, uint32_t n_hidden,
                       float *rows, void *scratch, struct device_shared *shared)
{
    bool quantize = product_quantizes(l->down_type);
    bool together = quantize && !p.tensor_cores && l->width % TILE_ROWS == 0;
    float *hidden = (float *)scratch;
    struct product_set set = {};
    struct device_activations h;

    cuda_activations_bind(&h, (uint8_t *)scratch + hidden_bytes(l, n_hidden), l->width, n_hidden,
                          hidden, hidden_stride(l), quantize);
    set_input(&p, in);
    p.out = hidden;
    p.out_stride = hidden_stride(l);
    if (together) {
        p.out_q = h.q;
        p.out_d = h.d;
        p.out_sum = h.sum;
        h.bias = NULL;
    }
    gate_and_up(s, l, p, &set);
    if (shared)
        add_shared_hidden(s, shared, in, &set);
    product_flush(s, &set);
    if (quantize && !together)
        cuda_quantize(s, &h);
    set_input(&p, &h);
    p.out = rows;
    p.out_stride = l->d_model;
    p.out_q = NULL;
    down(s, l, p, &set);
    if (shared)
        add_shared_down(s, shared, &set);
    product_flush(s, &set);
}

size_t cuda_experts_scratch_bytes(const struct device_segments *layout, uint32_t n_segments,
                                  uint32_t n_task_rows)
{
    size_t quantized = product_quantizes(layout->down_type)
                           ? cuda_activations_bytes(layout->width, n_task_rows)
                           : 0;
    return hidden_bytes(layout, n_task_rows) + quantized;
}

/* How many tokens fit into a block's shared memory in both products, for items of n_segments. */
static uint32_t tokens_an_item(const struct device_segments *l, uint32_t most_segments)
{
    uint32_t up = product_tokens(2, l->d_model), down = product_tokens(most_segments, l->width);
    return most_segments > PASS_PLACES ? 0 : up < down ? up : down;
}

static uint32_t most_segments(const struct device_expert_task *tasks, uint32_t n_tasks)
{
    uint32_t most = 1;

    for (uint32_t i = 0; i < n_tasks; i++)
        if (tasks[i].n_segments > most)
            most = tasks[i].n_segments;
    return most;
}

/* True: tensor cores compute the tasks in less time. */
static bool wants_tensor_cores(const struct device_stream *s, const struct device_segments *l,
                               const struct device_expert_task *tasks, uint32_t n_tasks)
{
    uint64_t n_tokens = 0, steps = 0, blocks = 0;

    if (!s->device->tensor_cores || !product_quantizes(l->gate_type) ||
        !product_quantizes(l->up_type) || !product_quantizes(l->down_type))
        return false;
    for (uint32_t i = 0; i < n_tasks; i++) {
        uint32_t n = tasks[i].n_tokens;
        n_tokens += n;
        steps += (n + PRODUCT_MMA_STEP - 1) / PRODUCT_MMA_STEP;
        blocks += tasks[i].n_segments * product_mma_blocks(l->width, n);
    }
    return product_mma_pays(n_tokens, steps, blocks, (uint64_t)s->device->multiprocessors);
}

/* True: experts have float weights, and tensor cores compute those. */
static bool has_float_mma(const struct device_stream *s, const struct device_segments *l)
{
    bool gate = l->up_offset == 0 || product_mma_takes(l->gate_type, l->d_model);
    bool up = product_mma_takes(l->up_type, l->d_model);
    bool down = product_mma_takes(l->down_type, l->width);
    bool quantized = product_quantizes(l->gate_type) && product_quantizes(l->up_type) &&
                     product_quantizes(l->down_type);

    return s->device->bf16 && gate && up && down && !quantized;
}

static void refuse(struct device_stream *s)
{
    cuda_refuse(s->device, "experts of too many columns", __FILE__, __LINE__);
}

/* The tasks of g's kind. */
static void run_passes(struct device_stream *s, const struct device_segments *l,
                       const struct device_activations *in, struct progress g, float *rows,
                       void *scratch)
{
    struct pass pass;

    while (next_pass(&g, &pass)) {
        struct product p = {};
        p.tensor_cores = g.tensor_cores;
        if (stage(s, &pass, &p))
            run_tables(s, l, in, p, pass.n_hidden, rows, scratch, NULL);
    }
}

void cuda_experts(struct device_stream *s, const struct device_segments *layout,
                  const struct device_activations *in, const struct device_expert_task *tasks,
                  uint32_t n_tasks, float *rows, void *scratch)
{
    struct progress g = {};
    uint32_t most = most_segments(tasks, n_tasks);

    g.tasks = tasks;
    g.n_tasks = n_tasks;
    g.floats = most <= PASS_PLACES && has_float_mma(s, layout);
    g.tokens_an_item = tokens_an_item(layout, most);
    g.tensor_cores = most <= PASS_PLACES && wants_tensor_cores(s, layout, tasks, n_tasks);
    if (g.tensor_cores)
        g.tokens_an_item = PRODUCT_MMA_TOKENS;
    if (g.tokens_an_item == 0) {
        refuse(s);
        return;
    }
    run_passes(s, layout, in, g, rows, scratch);
    if (g.floats) {
        g.rounds = g.tensor_cores = true;
        g.tokens_an_item = PRODUCT_MMA_TOKENS;
        run_passes(s, layout, in, g, rows, scratch);
    }
}

/* ---- Experts that a gate chose ---- */

size_t cuda_chosen_bytes(uint32_t n, uint32_t n_used, uint32_t n_segments)
{
    size_t choices = (size_t)n * n_used;
    return choices * (sizeof(struct product_item) + n_segments * sizeof(void *) + sizeof(uint32_t));
}

bool choose_call_of(struct device_stream *s, const struct device_choice *choice,
                    const uint32_t *selected, uint32_t n, struct choose_call *out)
{
    struct choose_call c = {};

    c.at = choice->at;
    c.selected = selected;
    c.n_choices = n * choice->at.n_used;
    c.tokens_an_item = tokens_an_item(choice->layout, choice->at.n_segments);
    if (c.tokens_an_item == 0 || c.n_choices > DEVICE_CHOSEN) {
        refuse(s);
        return false;
    }
    c.n_items = choose_items(c.n_choices, choice->at.n_experts, c.tokens_an_item);
    c.items = (struct product_item *)choice->tables;
    c.places = (const void **)(c.items + c.n_choices);
    c.tokens = (uint32_t *)(c.places + (size_t)c.n_choices * choice->at.n_segments);
    c.row_of = choice->row_of;
    *out = c;
    return true;
}

void cuda_experts_chosen(struct device_stream *s, const struct device_choice *choice,
                         const struct device_activations *in, float *rows, void *scratch,
                         struct device_shared *shared)
{
    uint32_t n = in->n_tokens;
    struct choose_call c;
    struct product p = {};

    if (n == 0 || !choose_call_of(s, choice, NULL, n, &c))
        return;
    p.items = c.items;
    p.places = (const uint8_t *const *)c.places;
    p.tokens = c.tokens;
    p.n_items = c.n_items;
    p.n_segments = choice->at.n_segments;
    p.n_tokens = n < c.tokens_an_item ? n : c.tokens_an_item;
    run_tables(s, choice->layout, in, p, c.n_choices * choice->at.n_segments, rows, scratch,
               shared);
}
