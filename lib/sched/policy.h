/* Policies by name: presets of an assigner, a cache with its budget, a predictor, and a
 * prefetcher. */
#ifndef MOED_SCHED_POLICY_H
#define MOED_SCHED_POLICY_H

#include "sched/assign/assign.h"
#include "sched/cache/cache.h"
#include "sched/prefetch/transfer_scheduler.h"
#include "sched/predict/predict.h"

struct sched_policy {
    const char *name;
    const char *what; /* one line, with the source */
    enum sched_assigner assigner;
    enum sched_cache_kind cache;
    enum sched_budget budget;
    enum sched_predictor predictor; /* whose predictions are prefetched */
    enum sched_prefetcher prefetcher;
};

const struct sched_policy *sched_policy_find(const char *name); /* NULL: there is none */
const struct sched_policy *sched_policy_at(uint32_t i);         /* NULL after the last */
const char *sched_policy_names(void);
/* The same with the policies that know the future: for replay only. */
const struct sched_policy *sched_policy_at_any(uint32_t i);
const char *sched_policy_names_any(void);
const char *sched_policy_help(void);

/* The parts, each by name. _find: false for an unknown name. _name: NULL for one past the last.
 * _what: one line that describes it. _names: all of them, separated by ", ". _help: a line of
 * --help for the option that chooses one, with all names. */
bool sched_assigner_find(const char *name, enum sched_assigner *out);
const char *sched_assigner_name(enum sched_assigner a);
const char *sched_assigner_what(enum sched_assigner a);
const char *sched_assigner_names(void);
const char *sched_assigner_help(void);

bool sched_cache_find(const char *name, enum sched_cache_kind *out);
const char *sched_cache_name(enum sched_cache_kind k);
const char *sched_cache_what(enum sched_cache_kind k);
const char *sched_cache_names(void);
const char *sched_cache_help(void);
/* For replay: with the caches that only it may use (sched_cache_replay_only). */
bool sched_cache_find_any(const char *name, enum sched_cache_kind *out);
const char *sched_cache_names_any(void);

bool sched_predictor_find(const char *name, enum sched_predictor *out);
const char *sched_predictor_name(enum sched_predictor p);
const char *sched_predictor_what(enum sched_predictor p);
const char *sched_predictor_names(void);
const char *sched_predictor_help(void);
/* The predictor that replaces an untrained one that must be trained. */
enum sched_predictor sched_predictor_untrained(enum sched_assigner assigner);

bool sched_budget_find(const char *name, enum sched_budget *out);
const char *sched_budget_name(enum sched_budget b);
const char *sched_budget_what(enum sched_budget b);
const char *sched_budget_names(void);
const char *sched_budget_help(void);

bool sched_prefetcher_find(const char *name, enum sched_prefetcher *out);
const char *sched_prefetcher_name(enum sched_prefetcher p);
const char *sched_prefetcher_what(enum sched_prefetcher p);
const char *sched_prefetcher_names(void);
const char *sched_prefetcher_help(void);

#endif
