/* A deployment of fake daemons under the real supervisor, in a directory of its own. */
#ifndef MOED_TESTS_DEPLOYMENT_FIXTURE_H
#define MOED_TESTS_DEPLOYMENT_FIXTURE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct fixture {
    char base[64]; /* holds run/, bin/ and model */
    char run[80];
    pid_t supervisor; /* 0: not running, or waited for */
};

/* Paths of the two programs, from main's arguments. */
extern const char *fixture_supervise, *fixture_fake_daemon;

void fixture_make(struct fixture *f);
void fixture_remove(struct fixture *f); /* kills what is left */
/* RUN/script.PROCESS, for its next start. */
void fixture_script(const struct fixture *f, const char *process, const char *text);
/* Start the supervisor, with --cpuexec and more arguments (NULL-terminated). close_stdio: without descriptors 0
 * to 2. */
void fixture_start(struct fixture *f, const char *const *more, bool close_stdio);
/* Its exit status, or -signal; -1000 where it does not end within timeout_ms. */
int fixture_wait_supervisor(struct fixture *f, int timeout_ms);

/* A connection to the supervisor's socket, waiting until there is one; -1: there is none. */
int fixture_connect(const struct fixture *f);
/* One command; the answer (NUL-terminated) in a static buffer, NULL where none came within 5 s. */
const char *fixture_command(const struct fixture *f, const char *command);
/* The value of key in the status line of `process` ("deployment" for that line); static buffer. */
const char *fixture_value(const struct fixture *f, const char *process, const char *key);
/* Wait until the value is that. */
bool fixture_until(const struct fixture *f, const char *process, const char *key, const char *value,
                   int timeout_ms);
pid_t fixture_pid(const struct fixture *f, const char *process);

/* A file of RUN as text, static buffer; "" where it is absent. */
const char *fixture_file(const struct fixture *f, const char *name);
bool fixture_exists(const struct fixture *f, const char *name);
/* How often RUN/events has the line. */
unsigned fixture_count_events(const struct fixture *f, const char *line);
/* Wait until no process of that pid is left (a zombie counts as gone). */
bool fixture_gone(pid_t pid, int timeout_ms);

#endif
