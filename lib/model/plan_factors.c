/* Finds the factors of NVFP4 matrices in the file; see pool_plan.h. */
#include "model/planner.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WEIGHT ".weight"

/* The tensor "NAME.scale" beside "NAME.weight"; NULL: none. */
static const struct gguf_tensor *find_factors(const struct gguf *g, const char *weight)
{
    char name[GGUF_NAME_BYTES + sizeof ".scale"];
    size_t n = strlen(weight), end = strlen(WEIGHT);
    if (n < end || strcmp(weight + n - end, WEIGHT) != 0)
        return NULL;
    snprintf(name, sizeof name, "%.*s.scale", (int)(n - end), weight);
    return gguf_tensor_find(g, name);
}

/* True: the architecture has this tensor, and it is used elsewhere. Gemma 4's ffn_down_exps.scale
 * multiplies the experts' weights in their sum; converters to NVFP4 multiply it by the matrices'
 * factors. */
static bool is_planned(const struct pool_plan *plan, const char *name)
{
    for (uint32_t i = 0; i < plan->header.n_tensors; i++)
        if (strcmp(plan->tensors[i].name, name) == 0)
            return true;
    return false;
}

/* planes: matrices of the tensor, which have a factor each, or all the same. */
static void find_of(struct pool_source *source, uint32_t planes, void *arg)
{
    struct planner *p = arg;
    const struct gguf_tensor *of = source->tensor;
    const struct gguf_tensor *t =
        of && tile_has_factors(of->type) ? find_factors(p->g, of->name) : NULL;
    if (!t || p->failed || is_planned(p->plan, t->name))
        return;
    bool fits = t->type == TENSOR_F32 && (t->ne[0] == 1 || t->ne[0] == planes) && t->ne[1] == 1 &&
                t->ne[2] == 1 && t->ne[3] == 1;
    if (!fits) {
        p->failed = error_set(p->e, ERROR_FORMAT,
                              "%s: tensor '%s' has type %s and shape %" PRIu64 " x %" PRIu64
                              ": expected F32 and 1 value or %" PRIu32 ", the factors of '%s'",
                              gguf_path(p->g, t->file), t->name, tensor_type_info(t->type)->name,
                              t->ne[0], t->ne[1], planes, of->name);
        return;
    }
    p->used[t - gguf_tensor_at(p->g, 0)] = true;
    source->factors = t;
    source->first_factor = p->plan->n_factors;
    p->plan->n_factors += (uint32_t)t->ne[0];
}

/* Calls work for every source of matrices. */
static void each_source(struct pool_plan *plan,
                        void (*work)(struct pool_source *, uint32_t planes, void *arg), void *arg)
{
    for (uint32_t i = 0; i < plan->header.n_tensors; i++)
        work(&plan->sources[i], plan->tensors[i].planes, arg);
    for (uint32_t i = 0; i < plan->header.n_layers; i++) {
        struct pool_expert_sources *x = &plan->experts[i];
        uint32_t n = plan->slabs[i].n_experts;
        work(&x->gate, n, arg);
        work(&x->up, n, arg);
        work(&x->down, n, arg);
    }
}

void plan_factors(struct planner *p)
{
    struct pool_plan *plan = p->plan;
    if (p->failed)
        return;
    each_source(plan, find_of, p);
    if (p->failed || !plan->n_factors)
        return;
    plan->factors = malloc(plan->n_factors * sizeof *plan->factors);
    if (!plan->factors) {
        p->failed = error_set(p->e, ERROR_MEMORY, "no memory for %" PRIu32 " factors of matrices",
                              plan->n_factors);
        return;
    }
    for (uint32_t i = 0; i < plan->n_factors; i++)
        plan->factors[i] = NAN;
}

struct reading {
    const struct gguf *g;
    struct pool_plan *plan;
    struct error *e;
    enum error_code failed;
};

static void read_of(struct pool_source *source, uint32_t planes, void *arg)
{
    struct reading *r = arg;
    const struct gguf_tensor *t = source->factors;
    (void)planes;
    if (!t || r->failed)
        return;
    float *factors = r->plan->factors + source->first_factor;
    r->failed = gguf_read_tensor(r->g, t, factors, r->e);
    for (uint64_t i = 0; i < t->ne[0] && !r->failed; i++)
        if (!isfinite(factors[i]))
            r->failed = error_set(r->e, ERROR_FORMAT,
                                  "%s: tensor '%s' has a value that is not a finite number: the "
                                  "file is damaged, or was converted wrongly",
                                  gguf_path(r->g, t->file), t->name);
}

enum error_code pool_plan_read_factors(struct pool_plan *plan, const struct gguf *g,
                                       struct error *e)
{
    struct reading r = {g, plan, e, ERROR_OK};
    each_source(plan, read_of, &r);
    return r.failed;
}

float pool_source_factor(const struct pool_plan *plan, const struct pool_source *source,
                         uint32_t plane)
{
    if (!source->factors)
        return 1;
    return plan->factors[source->first_factor + (source->factors->ne[0] == 1 ? 0 : plane)];
}
