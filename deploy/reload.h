/* Replacing the model while the deployment serves (`moed reload`).
 *
 * The supervisor starts a second generation of memd, cpuexec and workers in the place that is free
 * (daemon/run_dir.h). The first one serves until all of the second are ready. Then one rename makes
 * the other place serve: clients that attach from then on find the new model. Workers of the old
 * one finish their requests, and it stops.
 *
 *   none --reload_command--> loads ------all are ready------> drains --all have ended--> none
 *                             |  '----one has ended----> undoes --all have ended--> none (failed)
 *   (stop_first) makes room --'
 *
 * - The first end of a process before the switch undoes the reload: nothing is tried twice, and the
 *   generation that serves was never touched.
 * - stop_first: the old generation drains and stops before the new one starts, for models that do
 *   not fit together. The switch comes first then: new requests are refused until the new one is
 *   ready. If it does not start, the old one starts again.
 * - From the switch on the new generation is what the supervisor restarts; its processes are those
 *   at processes[0 .. LAST_WORKER]. A process of the old one that ends is not started again.
 * - If the supervisor is killed at any instant, the kernel ends all processes (PR_SET_PDEATHSIG);
 *   the next supervisor clears both places. */
#ifndef MOED_DEPLOY_RELOAD_H
#define MOED_DEPLOY_RELOAD_H

#include "base/strbuf.h"

#include <stdbool.h>
#include <stdint.h>

enum reload_phase {
    RELOAD_NONE,
    RELOAD_MAKES_ROOM,
    RELOAD_LOADS,
    RELOAD_UNDOES,
    RELOAD_DRAINS,
};

struct reload {
    enum reload_phase phase;
    unsigned number; /* of the last reload; 0: there was none */
    bool stop_first;
    bool failed;       /* the last one */
    bool asked;        /* in RELOAD_DRAINS: the workers have been asked to finish */
    uint64_t drain_ns; /* when to ask them */
    char reason[700];  /* why it failed */
};

struct supervisor;

/* At the start: there is one generation. */
void reload_init(struct supervisor *s);
/* Begins a reload. request: key=value fields between TABs (supervisor_protocol.h). */
void reload_command(struct supervisor *s, const char *request, struct strbuf *answer);
/* Undoes a reload before the switch. */
void reload_cancel(struct supervisor *s, struct strbuf *answer);
/* Appends the lines of the last reload and of the other generation's processes. */
void reload_status(const struct supervisor *s, struct strbuf *answer);
/* Acts on the states of processes, in each turn of the supervisor's loop. */
void reload_advance(struct supervisor *s);
/* True: the generation that serves does not start now; its memory is for the next one. */
bool reload_holds(const struct supervisor *s);
/* Stops the other generation, also where the deployment stops. */
void reload_stop(struct supervisor *s);
/* Whether a process of the other generation runs. */
bool reload_runs(const struct supervisor *s);
/* When reload_advance has something to do (clock_ns); UINT64_MAX: at an event. */
uint64_t reload_deadline(const struct supervisor *s);

#endif
