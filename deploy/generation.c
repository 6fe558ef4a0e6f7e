/* The processes of one generation, whichever place they are in; see supervisor.h. */
#include "deploy/supervisor.h"

bool generation_workers_run(const struct supervisor *s, int base)
{
    for (int i = WORKER; i <= LAST_WORKER; i++)
        if (s->processes[base + i].pid)
            return true;
    return false;
}

bool generation_dependents_run(const struct supervisor *s, int base)
{
    return s->processes[base + CPUEXEC].pid || generation_workers_run(s, base);
}

void generation_stop_dependents(struct supervisor *s, int base, enum process_state after_stop,
                                uint64_t grace_ns)
{
    /* The workers first: cpuexec still computes for them. */
    for (int i = WORKER; i <= LAST_WORKER; i++)
        process_stop(&s->processes[base + i], after_stop, grace_ns, &s->policy);
    if (!generation_workers_run(s, base) || grace_ns)
        process_stop(&s->processes[base + CPUEXEC], after_stop, grace_ns, &s->policy);
}

unsigned generation_count_workers(const struct supervisor *s)
{
    unsigned n = 0;
    for (int i = WORKER; i <= LAST_WORKER; i++)
        n += !s->processes[i].unused && !s->processes[i].leaving;
    return n;
}

void generation_forget_removed(struct supervisor *s)
{
    for (int i = WORKER; i <= LAST_WORKER; i++) {
        struct process *p = &s->processes[i];
        if (!p->leaving || p->pid)
            continue;
        p->leaving = false;
        p->unused = true;
    }
}
