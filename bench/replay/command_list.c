/* moed-replay --list: every policy with its parts, every part, every machine. */
#include "bench/replay/commands.h"
#include "bench/replay/machine.h"
#include "sched/policy.h"

#include <stdio.h>

static void list_policies(void)
{
    const struct sched_policy *p;
    printf("policies\n");
    for (uint32_t i = 0; (p = sched_policy_at_any(i)); i++)
        printf("  %-19s%s\n%21sassign=%s cache=%s budget=%s predictor=%s prefetch=%s\n", p->name,
               p->what, "", sched_assigner_name(p->assigner), sched_cache_name(p->cache),
               sched_budget_name(p->budget), sched_predictor_name(p->predictor),
               sched_prefetcher_name(p->prefetcher));
}

#define LIST(heading, part, type)                                                                  \
    printf("\n" heading "\n");                                                                     \
    for (int i = 0; sched_##part##_name((type)i); i++)                                             \
    printf("  %-19s%s\n", sched_##part##_name((type)i), sched_##part##_what((type)i))

int command_list(int argc, char **argv)
{
    list_policies();
    LIST("assign=", assigner, enum sched_assigner);
    LIST("cache=", cache, enum sched_cache_kind);
    LIST("budget=", budget, enum sched_budget);
    LIST("predictor=", predictor, enum sched_predictor);
    LIST("prefetch=", prefetcher, enum sched_prefetcher);
    printf("\nmachines\n  %s\n", machine_names());
    return fflush(stdout) || ferror(stdout) ? 1 : 0;
}
