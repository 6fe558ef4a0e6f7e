/* The command lines of the daemons: which option goes to which process. */
#include "deploy/supervisor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void add_argument(struct process *p, const char *flag, const char *value)
{
    size_t n = 0;
    while (p->arguments[n])
        n++;
    if (n + 2 > PROCESS_MAX_ARGUMENTS)
        abort(); /* our bug: the options below are fewer */
    p->arguments[n++] = (char *)flag;
    if (value)
        p->arguments[n] = (char *)value;
}

static unsigned kind_of(int which)
{
    return which == MEMD      ? TO_MEMD
           : which == CPUEXEC ? TO_CPUEXEC
           : which == MODELS  ? TO_MODELS
           : which == HTTP    ? TO_HTTP
                              : TO_WORKER;
}

/* Process i's own arguments. */
static void add_own(struct supervisor *s, struct generation *g, struct process *p, int i)
{
    add_argument(p, "--run", kind_of(i) & TO_ALL ? g->dir : s->run);
    if (i == MEMD)
        add_argument(p, "--model", g->model);
    if (i == MODELS)
        add_argument(p, "--folder", s->models);
    if (i == HTTP)
        add_argument(p, "--name", g->settings.name);
    if (i == HTTP && g->settings.options.models)
        add_argument(p, "--models", NULL);
    if (is_worker(i) && i > WORKER) {
        char *text = g->worker_numbers[i - WORKER];
        snprintf(text, sizeof g->worker_numbers[0], "%d", i - WORKER + 1);
        add_argument(p, "--number", text);
    }
}

void supervisor_build_arguments(struct supervisor *s, struct generation *g, struct process *first,
                                int n)
{
    for (int i = 0; i < n; i++) {
        struct process *p = &first[i];
        memset(p->arguments, 0, sizeof p->arguments);
        add_argument(p, p->program, NULL);
        add_own(s, g, p, i);
        for (size_t k = 0; k < DEPLOYMENT_OPTIONS_COUNT; k++) {
            const struct deployment_option *o = &deployment_options_table[k];
            const char *value = deployment_options_text(o, &g->settings.options, g->numbers[k]);
            if (value && o->takers & kind_of(i))
                add_argument(p, o->taker_flag, o->type == OPTION_BOOL ? NULL : value);
        }
    }
}
