/* The protocol of RUN/supervise.sock, between moed-supervise and its clients (moed up, down, ps,
 * restart).
 *
 * The socket is a unix stream socket with mode 0600. A client sends any number of commands, one a
 * line. An answer is any number of lines and then "ok" or "error TEXT". TABs separate the fields of
 * a line: the first is the line's kind, the others are key=value. No value contains a TAB or a
 * newline.
 *
 *   status            deployment  name= state= pid= uptime_ms= folder= model= reason=
 *                     (folder: that of moed-supervise's program)
 *                     process     name= state= pid= restarts= ready_ends= failures= lacks=
 *                     uptime_ms= replaced= status= reason=
 *                     (a line for each process of the deployment. replaced=1: the file of its
 *                     program or GPU module is another than the one that runs. ready_ends: how
 *                     often it has ended after it was ready, unasked. lacks: its last
 *                     starts in a row that ended for lack of device memory; failures: those that
 *                     ended for another cause before it was ready)
 *                     reload      number= state= model= reason=     (of the last reload)
 *                     other       name= state= pid= status= reason= (during it: a line for each
 *                     process of the model that does not serve: the next one, or the one before)
 *   restart PROCESS   stops it, with the processes that need it, and starts it again; also a process
 *                     in state failed
 *   workers N         changes the number of workers. One that is removed takes no new requests, and
 *                     ends when those that it has are done, or after the drain time. Answers "ok"
 *                     at once
 *   reload<TAB>KEY=VALUE...  loads another model beside the one that serves, and switches to it
 *                     (deploy/reload.h). Keys: model (an absolute path), predictors, ram, device,
 *                     kv_cache, policy, ctx; stop_first=1: stops the first model before. What is
 * not given stays as it is, but for predictors. Answers at once: reload number=
 *   reload-cancel     undoes a reload before its switch
 *   down              stops everything; answers at once: stopping most_ms=  (after which it has
 *                     killed what does not stop). Closes the connection at the end
 *   down-now          the same, and http does not wait for answers that run (--drain)
 *
 * A process's state:
 *   waiting   for a process that must be ready first
 *   starting  runs, not ready yet; `status` is its progress
 *   ready
 *   backoff   died; the supervisor starts it again after a delay
 *   failed    not started again; `reason` has the exit status and the last log line
 *   stopping  asked to stop
 *   stopped
 * uptime_ms counts from its start. pid is 0 where it does not run. reason: why it ended last.
 *
 * A deployment's state:
 *   starting  some process is not ready yet. With a reason: memd or all workers have ended before
 *             they were ready, at SUPERVISE_PATIENT_STARTS starts in a row; where it has no model
 *             of its own, models or http have. The supervisor tries on
 *   ready     all processes are ready
 *   degraded  answers, but its cpuexec, models or http or one of its workers does not run
 *   failed    memd or all workers have failed (reason: which and why); without memd the others stop.
 *             Where it has no model of its own: models or http has failed
 *   stopping
 *
 * A reload's state:
 *   making-room  (stop_first) the model that served finishes its requests and stops
 *   loading      the next model starts
 *   undoing      it did not start: its processes end
 *   draining     it serves; the model before finishes its requests and stops
 *   done, failed
 *
 * Exit status of moed-supervise: 0 stopped on request; 1 unusable environment (message on standard
 * error and in supervise.log); 2 usage; 4 the deployment runs already. */
#ifndef MOED_DAEMON_SUPERVISOR_PROTOCOL_H
#define MOED_DAEMON_SUPERVISOR_PROTOCOL_H

#include <stdbool.h>
#include <string.h>

#define SUPERVISE_SOCKET       "supervise.sock"
#define SUPERVISE_LINE_BYTES   10240 /* longest command with its newline: reload has two paths */
#define SUPERVISE_ANSWER_BYTES 32768 /* longest answer */
#define SUPERVISE_EXIT_RUNNING 4
/* A process that ended for lack of device memory, or that was ready before, is started again and
 * again; commands that wait for it give up after so many starts in a row. */
#define SUPERVISE_PATIENT_STARTS 5
/* memd's status begins so once it has its memory of the device: that ends the row. */
#define SUPERVISE_LOADING    "loading"
#define SUPERVISE_WATCHDOG_S 20 /* how long a process may be silent, unless an option says so */

/* In the order of their start; the supervisor stops them in reverse. A deployment has the first n
 * workers. */
#define SUPERVISE_FIRST_WORKER 2
#define SUPERVISE_WORKERS      16
#define SUPERVISE_PROCESSES    (SUPERVISE_FIRST_WORKER + SUPERVISE_WORKERS + 2)
static const char *const supervise_process_names[SUPERVISE_PROCESSES] = {
    "memd",      "cpuexec",   "worker",    "worker-2",  "worker-3",  "worker-4",  "worker-5",
    "worker-6",  "worker-7",  "worker-8",  "worker-9",  "worker-10", "worker-11", "worker-12",
    "worker-13", "worker-14", "worker-15", "worker-16", "models",    "http"};

/* The name of worker n, from 1. */
static inline const char *supervise_worker_name(unsigned n)
{
    return supervise_process_names[SUPERVISE_FIRST_WORKER + n - 1];
}
/* True for "worker" and "worker-N". */
static inline bool supervise_is_worker(const char *process)
{
    return strncmp(process, "worker", 6) == 0 && (process[6] == '\0' || process[6] == '-');
}
/* It starts behind memd, and ends with it. */
static inline bool supervise_needs_memd(const char *process)
{
    return supervise_is_worker(process) || strcmp(process, "cpuexec") == 0;
}

#endif
