/* The layer under way: its step, its input and the tasks of its experts; see experts_internal.h. */
#include "experts_internal.h"

/* memd is sent the present costs once in so many steps. */
#define COSTS_STEPS 16

/* memd's budgets and prefetchers use the present costs. */
static void report_costs(struct experts *x)
{
    struct sched_costs costs = cost_model_now(&x->cost);
    device_cache_costs(x->device.cache, &costs, x->cost.attention_s, x->cost.head_s);
}

uint64_t experts_step_of(const struct experts *x, uint32_t layer)
{
    return x->work.step + (layer <= x->work.layer || x->work.step == 0);
}

void experts_enter_layer(struct experts *x, uint32_t layer, uint32_t n_tokens,
                         struct batch_kind kind)
{
    bool new_step = layer <= x->work.layer;
    if (x->device.cache && new_step && x->work.step % COSTS_STEPS == 1)
        report_costs(x);
    if (x->prefetch && new_step)
        prefetch_step(x->prefetch,
                      (struct prefetch_step){x->work.n_tokens, batch_decodes(x->work.kind)},
                      (struct prefetch_step){n_tokens, batch_decodes(kind)}, x->cost.has_cpu);
    x->work.step = experts_step_of(x, layer);
    if (x->prefetch)
        prefetch_enter(x->prefetch, x->work.step);
    x->work.layer = layer;
    x->work.n_tokens = n_tokens;
    x->work.kind = kind;
}

void experts_find_channel(struct experts *x, uint64_t now_ns)
{
    cpu_backend_find(&x->cpu, now_ns);
    x->cost.has_cpu = x->cpu.channel != NULL;
}

const struct activations *experts_input(struct experts *x)
{
    bool quantize = exec_experts_quantize(&x->memory->map.slabs[x->work.layer]);
    return exec_prepare(x->own, 1, x->work.values, x->d_model, x->work.n_tokens, x->d_model,
                        quantize);
}

struct expert_task experts_task(struct experts *x, const struct activated *a, uint32_t first,
                                uint32_t n)
{
    return (struct expert_task){.expert = a->expert,
                                .first_segment = first,
                                .n_segments = n,
                                .n_tokens = a->n_rows,
                                .tokens = x->work.indices + a->first_row,
                                .out = x->work.rows + (size_t)a->first_row * x->d_model,
                                .output = first ? EXPERT_CONTINUE : EXPERT_SUM,
                                .slab = a->slab};
}

enum error_code experts_call_overlap(struct experts *x, struct error *e)
{
    const struct experts_overlap *m = x->work.overlap;
    x->work.overlap = NULL;
    return m ? m->run(m->arg, e) : ERROR_OK;
}

void experts_before_wait(struct experts *x)
{
    if (x->prefetch)
        prefetch_before_wait(x->prefetch, x->work.step);
}

void experts_count_on_cpu(struct experts *x, uint64_t segments, uint64_t ns)
{
    counter_add(x->counters.on_cpu, segments);
    counter_add(x->counters.cpu_ns, ns);
}
