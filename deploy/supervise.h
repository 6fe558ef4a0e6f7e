/* moed-supervise: starts a deployment's processes in order, restarts those that die, stops them
 * cleanly. This header is what its clients (moed up, down, ps, restart) need: the protocol of
 * RUN/supervise.sock.
 *
 * A unix stream socket, mode 0600. The client sends one command a line; the answer is any number of
 * lines and then "ok" or "error TEXT". Any number of commands a connection. Fields of a line are
 * separated by a TAB; the first is the line's kind, the others are key=value (no value contains a
 * TAB or a newline).
 *
 *   status            deployment  name= state= pid= uptime_ms= model= reason=
 *                     process     name= state= pid= restarts= uptime_ms= status= reason=
 *                     (one a process; cpuexec where the deployment has one)
 *   restart PROCESS   stop it (with those that cannot live without it) and start it again; also one
 *                     that has failed for good
 *   down              stop everything; "ok" at once; the connection closes when all is stopped
 *
 * A process's state:
 *   waiting   for another one that must be ready before it
 *   starting  runs, not ready yet: `status` says how far it is
 *   ready
 *   backoff   died; will be started again after a pause
 *   failed    given up: `reason` has the exit status and its last log line
 *   stopping  asked to stop
 *   stopped
 * uptime_ms counts from its start; pid is 0 where it does not run; reason is why it ended last.
 *
 * A deployment's state:
 *   starting  some process is not ready yet
 *   ready     all are
 *   degraded  answers, but without the cpuexec that it should have
 *   failed    memd or the worker is given up (reason says which and why); memd takes the others down
 *   stopping
 *
 * Exit status of moed-supervise: 0 stopped as asked; 1 the environment (message on standard error
 * and in supervise.log); 2 usage; 4 the deployment runs already. */
#ifndef MOED_DEPLOY_SUPERVISE_H
#define MOED_DEPLOY_SUPERVISE_H

#define SUPERVISE_SOCKET       "supervise.sock"
#define SUPERVISE_LINE_BYTES   256  /* longest command with its newline */
#define SUPERVISE_ANSWER_BYTES 8192 /* longest answer */
#define SUPERVISE_EXIT_RUNNING 4

/* In the order in which they are started; stopped in reverse. */
#define SUPERVISE_PROCESSES 3
static const char *const supervise_process_names[SUPERVISE_PROCESSES] = {"memd", "cpuexec",
                                                                         "worker"};

#endif
