/* Policies by name: presets of an assigner, a cache with its budget, a predictor, and a prefetcher, the order in which what is
 * predicted is copied. */
#ifndef MOED_SCHED_POLICY_H
#define MOED_SCHED_POLICY_H

#include "sched/assign.h"
#include "sched/cache.h"
#include "sched/copies.h"
#include "sched/predict.h"

struct sched_policy {
    const char *name;
    const char *what; /* one line for people, with the source */
    enum sched_assigner assigner;
    enum sched_cache_kind cache;
    enum sched_budget budget;
    enum sched_predictor predictor; /* what it predicts is copied ahead */
    enum sched_prefetcher prefetcher;
};

const struct sched_policy *sched_policy_find(const char *name); /* NULL: there is none */
const struct sched_policy *sched_policy_at(uint32_t i);         /* NULL after the last */
const char *sched_policy_names(void);
/* The same with those that know the future: for replay alone. */
const struct sched_policy *sched_policy_at_any(uint32_t i);
const char *sched_policy_names_any(void);
const char *sched_policy_help(void);

/* The parts, each by name; false for another name. A name is NULL for one past the last. what: a line for people. names:
 * all of them, separated by ", ". help: a line of --help for the option that chooses one, with all names. */
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
/* Of replay alone, with those that only it may use (sched_cache_replay_only): find and names know the others. */
bool sched_cache_find_any(const char *name, enum sched_cache_kind *out);
const char *sched_cache_names_any(void);

bool sched_predictor_find(const char *name, enum sched_predictor *out);
const char *sched_predictor_name(enum sched_predictor p);
const char *sched_predictor_what(enum sched_predictor p);
const char *sched_predictor_names(void);
const char *sched_predictor_help(void);
/* What predicts for an assigner in the place of a predictor that has to be trained and is not. */
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
