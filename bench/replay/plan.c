/* Lists of policies, budgets and batches, and going through them; see plan.h. */
#include "bench/replay/plan.h"

#include "base/quantity.h"

#include <stdio.h>
#include <string.h>

enum { MOST_BATCH = 4096 };

/* ---- Lists ---- */

/* The next item of a list; false after the last. An empty item is one. */
static bool next_item(const char **text, const char **item, size_t *len)
{
    if (!*text)
        return false;
    *item = *text;
    *len = strcspn(*text, ",");
    *text = (*text)[*len] ? *text + *len + 1 : NULL;
    return true;
}

static const struct sched_policy *find_policy(const char *name, size_t len)
{
    const struct sched_policy *p;
    for (uint32_t i = 0; (p = sched_policy_at_any(i)); i++)
        if (strlen(p->name) == len && memcmp(p->name, name, len) == 0)
            return p;
    return NULL;
}

static void all_policies(struct replay_plan *p)
{
    const struct sched_policy *policy;
    p->n_policies = 0;
    for (uint32_t i = 0; (policy = sched_policy_at_any(i)) && p->n_policies < PLAN_MOST_POLICIES;
         i++)
        if (replay_has(policy))
            p->policies[p->n_policies++] = policy;
}

/* One "part=value" of a variant. */
static bool replace_part(struct sched_policy *p, const char *part, const char *value)
{
    if (strcmp(part, "assign") == 0)
        return sched_assigner_find(value, &p->assigner);
    if (strcmp(part, "cache") == 0) {
        bool found = sched_cache_find_any(value, &p->cache);
        if (found && !sched_cache_takes(p->cache, p->budget))
            p->budget = sched_cache_budget(p->cache);
        return found;
    }
    if (strcmp(part, "budget") == 0)
        return sched_budget_find(value, &p->budget) && sched_cache_takes(p->cache, p->budget);
    if (strcmp(part, "predictor") == 0)
        return sched_predictor_find(value, &p->predictor);
    return strcmp(part, "prefetch") == 0 && sched_prefetcher_find(value, &p->prefetcher);
}

/* "NAME/part=value/...": NULL where it is none. */
static const struct sched_policy *make_variant(struct plan_variant *v, const char *item, size_t len)
{
    char text[sizeof v->name], *rest = text;
    if (len >= sizeof text)
        return NULL;
    memcpy(text, item, len);
    text[len] = '\0';
    memcpy(v->name, text, len + 1);
    const char *name = strsep(&rest, "/"), *part;
    const struct sched_policy *preset = find_policy(name, strlen(name));
    if (!preset || !rest)
        return preset;
    v->policy = *preset;
    v->policy.name = v->name;
    while ((part = strsep(&rest, "/"))) {
        char *value = strchr(part, '=');
        if (!value)
            return NULL;
        *value++ = '\0';
        if (!replace_part(&v->policy, part, value))
            return NULL;
    }
    return &v->policy;
}

enum error_code plan_policies(struct replay_plan *p, const char *text, struct error *e)
{
    const char *item;
    size_t len;
    if (strcmp(text, "all") == 0) {
        all_policies(p);
        return ERROR_OK;
    }
    for (p->n_policies = 0; next_item(&text, &item, &len);) {
        if (p->n_policies == PLAN_MOST_POLICIES)
            return error_set(e, ERROR_USAGE, "--policies: more than %d", PLAN_MOST_POLICIES);
        const struct sched_policy *policy = make_variant(&p->variants[p->n_policies], item, len);
        if (!policy)
            return error_set(
                e, ERROR_USAGE,
                "--policies: there is no policy \"%.*s\"; allowed: all, or some of %s; with other "
                "parts: NAME/PART=VALUE/..., a PART of assign, cache, budget, predictor, prefetch",
                (int)(len < 60 ? len : 60), item, sched_policy_names_any());
        p->policies[p->n_policies++] = policy;
    }
    return ERROR_OK;
}

enum error_code plan_vram(struct replay_plan *p, const char *text, struct error *e)
{
    const char *item;
    size_t len;
    for (p->n_vram = 0; next_item(&text, &item, &len); p->n_vram++) {
        double share;
        if (p->n_vram == PLAN_MOST_VALUES)
            return error_set(e, ERROR_USAGE, "--vram: more than %d", PLAN_MOST_VALUES);
        if (!quantity_parse(item, len, quantity_percent, &share) || !(share > 0 && share <= 1))
            return error_set(e, ERROR_USAGE,
                             "--vram: \"%.*s\" is not a share of the routed experts; allowed: more "
                             "than 0%% to 100%%",
                             (int)(len < 60 ? len : 60), item);
        p->vram[p->n_vram] = share;
    }
    return ERROR_OK;
}

enum error_code plan_batch(struct replay_plan *p, const char *text, struct error *e)
{
    static const struct quantity_unit none[] = {{"", 1}, {NULL, 0}};
    const char *item;
    size_t len;
    for (p->n_batch = 0; next_item(&text, &item, &len); p->n_batch++) {
        double n;
        if (p->n_batch == PLAN_MOST_VALUES)
            return error_set(e, ERROR_USAGE, "--batch: more than %d", PLAN_MOST_VALUES);
        if (!quantity_parse(item, len, none, &n) || n < 1 || n > MOST_BATCH ||
            n != (double)(uint32_t)n)
            return error_set(e, ERROR_USAGE,
                             "--batch: \"%.*s\" is not a number of sequences; allowed: 1 to %d",
                             (int)(len < 60 ? len : 60), item, MOST_BATCH);
        p->batch[p->n_batch] = (uint32_t)n;
    }
    return ERROR_OK;
}

/* ---- Going through ---- */

uint32_t plan_size(const struct replay_plan *p)
{
    return p->n_vram * p->n_batch * p->n_policies;
}

enum error_code plan_run(const struct replay_plan *p, const struct replay_run *what,
                         plan_simulate *simulate, plan_progress *progress, void *arg,
                         struct replay_result *results, struct error *e)
{
    struct replay_cell cell = {0};
    for (uint32_t i = 0; i < plan_size(p); i++) {
        struct replay_run run = *what;
        if (i % p->n_policies == 0)
            cell = (struct replay_cell){0};
        run.cell = &cell;
        run.policy = p->policies[i % p->n_policies];
        run.batch = p->batch[i / p->n_policies % p->n_batch];
        run.vram = p->vram[i / p->n_policies / p->n_batch];
        if (progress)
            progress(arg, i, plan_size(p), &run);
        if (simulate(&run, &results[i], e))
            return error_prefix(e, "policy %s", run.policy->name);
        snprintf(results[i].policy, sizeof results[i].policy, "%s", run.policy->name);
        results[i].vram = run.vram;
        results[i].batch = run.batch;
    }
    return ERROR_OK;
}
