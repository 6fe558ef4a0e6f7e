/* Solves DALI's 0-1 program with GLPK; see optimal.h.
 *
 *   minimise T    subject to   D + sum of device_i x_i <= T,   C + sum of cpu_i (1 - x_i) <= T,
 *                              sum of missing_i x_i <= spare slots,   x_i 0 or 1
 *
 * D and C are the fixed work of device and CPU. Seconds are scaled so that the longest plan takes
 * 1, because the solver's tolerances are absolute. */
#include "bench/replay/optimal.h"

#include <glpk.h>
#include <math.h>
#include <stdlib.h>

/* Segments that are neither resident nor in flight, as lib/sched counts them. */
static uint32_t missing_of(const struct sched_layer *l, const struct sched_expert *e)
{
    uint64_t there = (uint64_t)e->resident + e->in_flight;
    return there < l->n_segments ? l->n_segments - (uint32_t)there : 0;
}

/* The device's fixed work: the resident part of an expert, where experts may be split. */
static double fixed_s(const struct sched_costs *c, const struct sched_layer *l,
                      const struct sched_expert *e)
{
    uint32_t missing = missing_of(l, e);
    return missing && !l->whole ? (l->n_segments - missing) * sched_device_s(c, e->workload) : 0;
}

bool optimal_is_built(void)
{
    return true;
}

double optimal_finish(const struct sched_costs *costs, const struct sched_layer *layer,
                      const struct sched_expert *experts, uint32_t n)
{
    double device = layer->link_busy_s, cpu = layer->cpu_busy_s;
    for (uint32_t i = 0; i < n; i++) {
        const struct sched_expert *e = &experts[i];
        uint32_t on_device = e->device + e->load, missing = missing_of(layer, e);
        uint32_t there = layer->n_segments - missing;
        uint32_t loads = on_device > there ? on_device - there : 0;
        uint32_t together = layer->whole ? on_device : loads; /* computed while the load runs */
        double device_s = sched_device_s(costs, e->workload);
        device +=
            (on_device - together) * device_s + fmax(loads * costs->load_s, together * device_s);
        if (on_device < layer->n_segments)
            cpu += (layer->n_segments - on_device) * sched_cpu_s(costs, e->workload);
    }
    return fmax(device, cpu);
}

struct search {
    uint32_t max_nodes;
};

static void stop_after_nodes(glp_tree *tree, void *arg)
{
    const struct search *s = arg;
    int total;
    glp_ios_tree_size(tree, NULL, NULL, &total);
    if (s->max_nodes && (uint32_t)total > s->max_nodes)
        glp_ios_terminate(tree);
}

enum { DEVICE_ROW = 1, CPU_ROW, SLOTS_ROW, N_ROWS = SLOTS_ROW };

/* Columns 1..n are x, n + 1 is T. */
static glp_prob *program(const struct sched_costs *costs, const struct sched_layer *layer,
                         const struct sched_expert *experts, int n, double scale)
{
    glp_prob *p = glp_create_prob();
    double device = layer->link_busy_s, cpu = layer->cpu_busy_s;
    glp_set_obj_dir(p, GLP_MIN);
    glp_add_rows(p, N_ROWS);
    glp_add_cols(p, n + 1);
    for (int i = 0; i < n; i++) {
        const struct sched_expert *e = &experts[i];
        struct sched_sides s = sched_sides(costs, layer, e);
        const int rows[] = {0, DEVICE_ROW, CPU_ROW, SLOTS_ROW};
        const double values[] = {0, s.device_s * scale, -s.cpu_s * scale, missing_of(layer, e)};
        device += fixed_s(costs, layer, e);
        cpu += s.cpu_s;
        glp_set_col_kind(p, i + 1, GLP_BV);
        glp_set_mat_col(p, i + 1, N_ROWS, rows, values);
    }
    glp_set_col_bnds(p, n + 1, GLP_LO, 0, 0);
    glp_set_obj_coef(p, n + 1, 1);
    glp_set_mat_col(p, n + 1, 2, (const int[]){0, DEVICE_ROW, CPU_ROW},
                    (const double[]){0, -1, -1});
    glp_set_row_bnds(p, DEVICE_ROW, GLP_UP, 0, -device * scale);
    glp_set_row_bnds(p, CPU_ROW, GLP_UP, 0, -cpu * scale);
    glp_set_row_bnds(p, SLOTS_ROW, GLP_UP, 0, layer->spare_slots);
    return p;
}

static void take_plan(glp_prob *p, const struct sched_layer *layer, struct sched_expert *experts,
                      int n)
{
    for (int i = 0; i < n; i++) {
        struct sched_expert *e = &experts[i];
        uint32_t missing = missing_of(layer, e);
        uint32_t resident = e->resident < layer->n_segments ? e->resident : layer->n_segments;
        bool on_device = glp_mip_col_val(p, i + 1) > 0.5, split = missing && !layer->whole;
        e->device = on_device || split ? resident : 0;
        e->load = on_device ? layer->n_segments - resident
                  : split   ? layer->n_segments - resident - missing
                            : 0;
    }
}

static double largest(const struct sched_costs *costs, const struct sched_layer *layer,
                      const struct sched_expert *experts, uint32_t n)
{
    double sum = layer->link_busy_s + layer->cpu_busy_s;
    for (uint32_t i = 0; i < n; i++) {
        struct sched_sides s = sched_sides(costs, layer, &experts[i]);
        sum += s.cpu_s + s.device_s + fixed_s(costs, layer, &experts[i]);
    }
    return sum;
}

/* Improves greedy's plan, which is in experts[]. True: solved to the end. The plan stays if the
 * solver finds no better one. */
static bool improve(const struct sched_costs *costs, const struct sched_layer *layer,
                    struct sched_expert *experts, uint32_t n, const struct optimal_options *o)
{
    struct search search = {o->max_nodes};
    glp_iocp parameters;
    glp_prob *p = program(costs, layer, experts, (int)n, 1 / largest(costs, layer, experts, n));
    glp_init_iocp(&parameters);
    parameters.msg_lev = GLP_MSG_OFF;
    parameters.presolve = GLP_ON;
    parameters.mip_gap = o->gap;
    parameters.cb_func = stop_after_nodes;
    parameters.cb_info = &search;
    bool ended = glp_intopt(p, &parameters) == 0;
    struct sched_expert *better = malloc(n * sizeof *better);
    if (better && (glp_mip_status(p) == GLP_OPT || glp_mip_status(p) == GLP_FEAS)) {
        for (uint32_t i = 0; i < n; i++)
            better[i] = experts[i];
        take_plan(p, layer, better, (int)n);
        if (optimal_finish(costs, layer, better, n) < optimal_finish(costs, layer, experts, n))
            for (uint32_t i = 0; i < n; i++)
                experts[i] = better[i];
    }
    bool proven = better && ended && glp_mip_status(p) == GLP_OPT;
    free(better);
    glp_delete_prob(p);
    return proven;
}

double optimal_assign(const struct sched_costs *costs, const struct sched_layer *layer,
                      struct sched_expert *experts, uint32_t n,
                      const struct optimal_options *options, bool *proven)
{
    struct optimal_options exact = {0};
    if (n > SCHED_MAX_EXPERTS)
        n = SCHED_MAX_EXPERTS;
    sched_assign(ASSIGN_GREEDY, costs, layer, experts, n);
    *proven = true;
    /* The solver does not check its input. Without a CPU, or without work, there is nothing to
     * choose. */
    double all_s = largest(costs, layer, experts, n);
    if (n && isfinite(all_s) && all_s > 0)
        *proven = improve(costs, layer, experts, n, options ? options : &exact);
    return optimal_finish(costs, layer, experts, n);
}
