/* Parses and runs lists of policies, budgets and batches; see plan.h. */
#include "bench/replay/plan.h"

#include "base/quantity.h"

#include <stdio.h>
#include <string.h>

enum { MOST_BATCH = 4096 };

/* ---- Lists ---- */

/* The next item of a list, which may be empty. False after the last one. */
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
        else
            p->without_solver = true;
}

static enum error_code unknown_part(const char *part, const char *value, const char *names,
                                    struct error *e)
{
    return error_set(e, ERROR_USAGE, "%s \"%.40s\" is not known; there are %s", part, value, names);
}

/* One "part=value" of a variant. */
static enum error_code replace_part(struct sched_policy *p, const char *part, const char *value,
                                    struct error *e)
{
    if (strcmp(part, "assign") == 0)
        return sched_assigner_find(value, &p->assigner)
                   ? ERROR_OK
                   : unknown_part("assigner", value, sched_assigner_names(), e);
    if (strcmp(part, "cache") == 0)
        return sched_cache_find_any(value, &p->cache)
                   ? ERROR_OK
                   : unknown_part(part, value, sched_cache_names_any(), e);
    if (strcmp(part, "budget") == 0)
        return sched_budget_find(value, &p->budget)
                   ? ERROR_OK
                   : unknown_part(part, value, sched_budget_names(), e);
    if (strcmp(part, "predictor") == 0)
        return sched_predictor_find(value, &p->predictor)
                   ? ERROR_OK
                   : unknown_part(part, value, sched_predictor_names(), e);
    if (strcmp(part, "prefetch") == 0)
        return sched_prefetcher_find(value, &p->prefetcher)
                   ? ERROR_OK
                   : unknown_part("prefetcher", value, sched_prefetcher_names(), e);
    return unknown_part("part", part, "assign, cache, budget, predictor, prefetch", e);
}

/* If the user named a cache and no budget, uses the cache's own budget where it needs that. */
static enum error_code settle_budget(struct sched_policy *p, bool named, struct error *e)
{
    if (sched_cache_takes(p->cache, p->budget))
        return ERROR_OK;
    if (named)
        return error_set(e, ERROR_USAGE, "cache %s does not take budget %s; it takes %s",
                         sched_cache_name(p->cache), sched_budget_name(p->budget),
                         sched_budget_name(sched_cache_budget(p->cache)));
    p->budget = sched_cache_budget(p->cache);
    return ERROR_OK;
}

static enum error_code replace_parts(struct plan_variant *v, char *rest, struct error *e)
{
    const char *part;
    bool budget_named = false;
    v->predictor_named = false;
    while ((part = strsep(&rest, "/"))) {
        char *value = strchr(part, '=');
        if (!value)
            return error_set(e, ERROR_USAGE, "\"%.40s\" is not PART=VALUE", part);
        *value++ = '\0';
        enum error_code code = replace_part(&v->policy, part, value, e);
        if (code)
            return code;
        budget_named |= strcmp(part, "budget") == 0;
        v->predictor_named |= strcmp(part, "predictor") == 0;
    }
    return settle_budget(&v->policy, budget_named, e);
}

/* "NAME" or "NAME/part=value/...". */
static enum error_code find_item(struct plan_variant *v, const char *item, size_t len,
                                 const struct sched_policy **out, struct error *e)
{
    char text[sizeof v->name], *rest = text;
    snprintf(text, sizeof text, "%.*s", (int)len, item);
    const char *name = strsep(&rest, "/");
    const struct sched_policy *preset = find_policy(name, strlen(name));
    if (!preset || len >= sizeof text)
        return error_set(
            e, ERROR_USAGE,
            "--policies: there is no policy \"%.*s\"; allowed: all, or some of %s; with other "
            "parts: NAME/PART=VALUE/..., a PART of assign, cache, budget, predictor, prefetch",
            (int)(len < 60 ? len : 60), item, sched_policy_names_any());
    *out = preset;
    if (!rest)
        return ERROR_OK;
    snprintf(v->name, sizeof v->name, "%.*s", (int)len, item);
    v->policy = *preset;
    v->policy.name = v->name;
    *out = &v->policy;
    enum error_code code = replace_parts(v, rest, e);
    return code ? error_prefix(e, "--policies: %s", v->name) : ERROR_OK;
}

enum error_code plan_policies(struct replay_plan *p, const char *text, struct error *e)
{
    const char *item;
    size_t len;
    if (strcmp(text, "all") == 0) {
        all_policies(p);
        return ERROR_OK;
    }
    for (p->n_policies = 0; next_item(&text, &item, &len); p->n_policies++) {
        uint32_t i = p->n_policies;
        if (i == PLAN_MOST_POLICIES)
            return error_set(e, ERROR_USAGE, "--policies: more than %d", PLAN_MOST_POLICIES);
        enum error_code code = find_item(&p->variants[i], item, len, &p->policies[i], e);
        if (code)
            return code;
    }
    return ERROR_OK;
}

enum error_code plan_settle_predictors(struct replay_plan *p, const struct predict_shape *shape,
                                       struct strbuf *settled, struct error *e)
{
    for (uint32_t i = 0; i < p->n_policies; i++) {
        const struct sched_policy *policy = p->policies[i];
        struct plan_variant *v = &p->variants[i];
        if (predictor_is_trained(policy->predictor, shape))
            continue;
        if (policy == &v->policy && v->predictor_named)
            return error_set(e, ERROR_USAGE,
                             "--policies: %s: predictor %s has to be trained for this model: "
                             "give a file of `moed train` with --predictors",
                             policy->name, sched_predictor_name(policy->predictor));
        if (policy != &v->policy)
            v->policy = *policy; /* the name is the preset's */
        snprintf(p->notes[i], sizeof p->notes[i], "%s in place of %s, which is not trained",
                 sched_predictor_name(sched_predictor_untrained(policy->assigner)),
                 sched_predictor_name(policy->predictor));
        v->policy.predictor = sched_predictor_untrained(policy->assigner);
        strbuf_printf(settled, "%s%s with %s", settled->len ? ", " : "", policy->name,
                      sched_predictor_name(v->policy.predictor));
        p->policies[i] = &v->policy;
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

/* ---- Running ---- */

uint32_t plan_size(const struct replay_plan *p)
{
    return p->n_vram * p->n_batch * p->n_policies;
}

enum error_code plan_run(const struct replay_plan *p, const struct replay_run *what,
                         plan_simulate *simulate, plan_progress *progress, void *arg,
                         struct replay_result *results, struct error *e)
{
    uint32_t per_vram = p->n_batch * p->n_policies, done = 0;
    struct replay_cell cell = {0};
    /* The batch in the outer loop: runs of a batch share more (shared.h). */
    for (uint32_t b = 0; b < p->n_batch; b++)
        for (uint32_t k = 0; k < p->n_vram * p->n_policies; k++) {
            uint32_t v = k / p->n_policies, policy = k % p->n_policies;
            struct replay_run run = *what;
            if (policy == 0)
                cell = (struct replay_cell){0};
            run.cell = &cell;
            run.policy = p->policies[policy];
            run.batch = p->batch[b];
            run.vram = p->vram[v];
            if (progress)
                progress(arg, done++, plan_size(p), &run);
            struct replay_result *out = &results[v * per_vram + b * p->n_policies + policy];
            if (simulate(&run, out, e))
                return error_prefix(e, "policy %s", run.policy->name);
            snprintf(out->policy, sizeof out->policy, "%s", run.policy->name);
            snprintf(out->note, sizeof out->note, "%s", p->notes[policy]);
            out->oracle = sched_cache_replay_only(run.policy->cache);
            out->vram = run.vram;
            out->batch = run.batch;
        }
    return ERROR_OK;
}
