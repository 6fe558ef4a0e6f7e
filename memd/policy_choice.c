/* Choosing a policy by name; see policy_choice.h. */
#include "policy_choice.h"

#include "base/log.h"
#include "base/strbuf.h"

static enum error_code unknown_name(const char *what, const char *name, const char *names,
                                    struct error *e)
{
    return error_set(e, ERROR_USAGE, "%s '%.40s' is not known; there are %s", what, name, names);
}

/* Without a named budget, a cache that does not take the present one brings its own. A named budget
 * that the cache does not take is refused. */
static enum error_code choose_budget(struct policy_choice *c, const char *budget, struct error *e)
{
    if (budget[0] && !sched_budget_find(budget, &c->budget))
        return unknown_name("budget", budget, sched_budget_names(), e);
    if (sched_cache_takes(c->cache, c->budget))
        return ERROR_OK;
    if (!budget[0]) {
        c->budget = sched_cache_budget(c->cache);
        return ERROR_OK;
    }
    struct strbuf takers;
    const char *name;
    strbuf_init(&takers);
    for (int k = 0; (name = sched_cache_name((enum sched_cache_kind)k)); k++)
        if (sched_cache_takes((enum sched_cache_kind)k, c->budget) &&
            !sched_cache_replay_only((enum sched_cache_kind)k))
            strbuf_printf(&takers, "%s%s", takers.len ? ", " : "", name);
    error_set(e, ERROR_USAGE, "cache %s does not take budget %s; those that do are %s",
              sched_cache_name(c->cache), budget, takers.failed ? "not listed" : takers.data);
    strbuf_fini(&takers);
    return ERROR_USAGE;
}

enum error_code policy_choose(struct policy_choice *c, const struct policy_names *names,
                              struct error *e)
{
    struct policy_choice new = *c;
    if (names->policy[0]) {
        const struct sched_policy *p = sched_policy_find(names->policy);
        if (!p)
            return unknown_name("policy", names->policy, sched_policy_names(), e);
        new = (struct policy_choice){p,           p->cache,     p->budget,
                                     p->assigner, p->predictor, p->prefetcher};
    }
    if (names->cache[0] && !sched_cache_find(names->cache, &new.cache))
        return unknown_name("cache", names->cache, sched_cache_names(), e);
    if (names->assigner[0] && !sched_assigner_find(names->assigner, &new.assigner))
        return unknown_name("assigner", names->assigner, sched_assigner_names(), e);
    if (names->predictor[0] && !sched_predictor_find(names->predictor, &new.predictor))
        return unknown_name("predictor", names->predictor, sched_predictor_names(), e);
    if (names->prefetcher[0] && !sched_prefetcher_find(names->prefetcher, &new.prefetcher))
        return unknown_name("prefetcher", names->prefetcher, sched_prefetcher_names(), e);
    enum error_code code = choose_budget(&new, names->budget, e);
    if (!code)
        *c = new;
    return code;
}

void policy_settle_predictor(struct policy_choice *c, const struct policy_names *names,
                             const struct predictors_file *predictors,
                             const struct model_params *params)
{
    struct error why;
    if (!names->policy[0] || names->predictor[0] ||
        !trained_check_predictor(predictors, params, c->predictor, &why))
        return;
    c->predictor = sched_predictor_untrained(c->assigner);
    log_warn("policy %s: %s; %s takes its place", c->policy->name, why.text,
             sched_predictor_name(c->predictor));
}
