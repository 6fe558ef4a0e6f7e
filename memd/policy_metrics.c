/* The policy's metrics; see policy_metrics.h. A policy with replaced parts counts under its own
 * name.
 */
#include "policy_metrics.h"

#include <stdio.h>
#include <stdlib.h>

struct one {
    struct policy_metrics *of;
    const struct sched_policy *policy;
    uint64_t before; /* bytes, of earlier times in force */
};

struct policy_metrics {
    const struct policy_choice *choice;
    struct caches *caches;
    uint64_t since; /* the link's bytes when the present policy came into force */
    uint32_t n;
    struct one policies[]; /* [n] */
};

static void write_labels(void *arg, struct strbuf *out)
{
    const struct policy_choice *c = ((const struct policy_metrics *)arg)->choice;
    strbuf_printf(
        out,
        "policy=\"%s\",assign=\"%s\",cache=\"%s\",budget=\"%s\",predictor=\"%s\",prefetch=\"%s\"",
        c->policy->name, sched_assigner_name(c->assigner), sched_cache_name(c->cache),
        sched_budget_name(c->budget), sched_predictor_name(c->predictor),
        sched_prefetcher_name(c->prefetcher));
}

static uint64_t bytes_since(const struct policy_metrics *p)
{
    struct cache_state s;
    caches_state(p->caches, &s);
    return s.link_bytes - p->since;
}

static double read_bytes(void *arg)
{
    const struct one *o = arg;
    bool in_force = o->of->choice->policy == o->policy;
    return (double)(o->before + (in_force ? bytes_since(o->of) : 0));
}

struct policy_metrics *policy_metrics_new(struct metrics *r, const struct policy_choice *choice,
                                          struct caches *caches, struct error *e)
{
    uint32_t n = 0;
    while (sched_policy_at(n))
        n++;
    struct policy_metrics *p = calloc(1, sizeof *p + n * sizeof *p->policies);
    if (!p) {
        error_set(e, ERROR_MEMORY, "no memory for the policy's metrics");
        return NULL;
    }
    p->choice = choice;
    p->caches = caches;
    p->n = n;
    metrics_info(r, "moed_memd_policy_info", write_labels, p, "The policy in force and its parts.");
    for (uint32_t i = 0; caches->n && i < n; i++) {
        char label[64];
        p->policies[i] = (struct one){.of = p, .policy = sched_policy_at(i)};
        snprintf(label, sizeof label, "policy=\"%s\"", p->policies[i].policy->name);
        metrics_counter_function(
            r, "moed_memd_policy_link_bytes_total", label, read_bytes, &p->policies[i],
            "Bytes copied over the link to the device, by the policy in force.");
    }
    return p;
}

void policy_metrics_free(struct policy_metrics *p)
{
    free(p);
}

void policy_metrics_changes(struct policy_metrics *p)
{
    if (!p->caches->n)
        return;
    uint64_t bytes = bytes_since(p);
    for (uint32_t i = 0; i < p->n; i++)
        if (p->policies[i].policy == p->choice->policy)
            p->policies[i].before += bytes;
    p->since += bytes;
}
