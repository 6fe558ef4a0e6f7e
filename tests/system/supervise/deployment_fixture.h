/* A deployment of fake daemons under the real supervisor, in a directory of its own. */
#ifndef MOED_TESTS_DEPLOYMENT_FIXTURE_H
#define MOED_TESTS_DEPLOYMENT_FIXTURE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct fixture {
    char base[64]; /* holds run/, bin/ and model */
    char run[80];
    pid_t supervisor; /* 0: not running, or already waited for */
};

enum { LIMIT_MS = 60000 }; /* for whatever is waited for: the machine may be busy */

/* Takes the paths of the two programs, main's arguments. False: there are not two; says so. */
bool fixture_programs(int argc, char **argv);

/* A test of cmocka whose state is a new fixture. Behind it the remaining processes are killed. */
#define FIXTURE_TEST(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)
int fixture_setup(void **state);
int fixture_teardown(void **state);
void assert_contains(const char *text, const char *part); /* text: NULL contains nothing */

/* Writes RUN/script.PROCESS for the next start of the process. */
void fixture_script(const struct fixture *f, const char *process, const char *text);
/* Starts the supervisor with --cpuexec and further arguments (NULL-terminated). close_stdio:
 * without descriptors 0 to 2. */
void fixture_start(struct fixture *f, const char *const *more, bool close_stdio);
/* Returns the exit status, or -signal; -1000 if the supervisor does not end within timeout_ms. */
int fixture_wait_supervisor(struct fixture *f, int timeout_ms);

/* Connects to the supervisor's socket, waiting until it exists; -1: it does not appear. */
int fixture_connect(const struct fixture *f);
/* Sends one command. Returns the answer (NUL-terminated) in a static buffer, NULL if none arrives
 * in time. */
const char *fixture_command(const struct fixture *f, const char *command);
/* Stops all processes by the command `down`; asserts that the supervisor ends well. */
void fixture_down(struct fixture *f);
/* Returns the value of key in the status line of `process` ("deployment" for that line); static
 * buffer. */
const char *fixture_value(const struct fixture *f, const char *process, const char *key);
/* Waits until the value is `value`. */
bool fixture_until(const struct fixture *f, const char *process, const char *key, const char *value,
                   int timeout_ms);
/* The same for a number that only grows while the test waits: until it is `least` or more. */
bool fixture_until_least(const struct fixture *f, const char *process, const char *key, int least);
pid_t fixture_pid(const struct fixture *f, const char *process);

/* Returns a file of RUN as text in a static buffer; "" if it is absent. */
const char *fixture_file(const struct fixture *f, const char *name);
bool fixture_exists(const struct fixture *f, const char *name);
/* Returns how often RUN/events has the line. */
unsigned fixture_count_events(const struct fixture *f, const char *line);
/* Waits until no process of that pid is left (a zombie counts as gone). */
bool fixture_gone(pid_t pid, int timeout_ms);

#endif
