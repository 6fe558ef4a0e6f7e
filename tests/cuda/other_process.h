/* Other processes of a test of the CUDA module: its program again, with a role as argument. */
#ifndef MOED_TESTS_CUDA_OTHER_PROCESS_H
#define MOED_TESTS_CUDA_OTHER_PROCESS_H

#include "on_device.h"

#include <sys/wait.h>
#include <unistd.h>

#define PROGRAM "/proc/self/exe"

/* A process of a role, and the pipes to its standard input and output. */
struct other {
    pid_t pid;
    int to, from;
};

/* name, value: a variable for its environment; NULL: the environment is ours. */
static inline struct other start(const char *role, const char *name, const char *value)
{
    int to[2], from[2];
    assert_true(pipe(to) == 0 && pipe(from) == 0);
    pid_t pid = fork();
    if (pid == 0) {
        dup2(to[0], 0);
        dup2(from[1], 1);
        close(to[1]);
        close(from[0]);
        if (name)
            setenv(name, value, 1);
        execl(PROGRAM, PROGRAM, role, (char *)NULL);
        _exit(127);
    }
    close(to[0]);
    close(from[1]);
    return (struct other){pid, to[1], from[0]};
}

/* Returns the status of waitpid. */
static inline int end(struct other *o)
{
    int status;
    close(o->to);
    close(o->from);
    assert_int_equal(waitpid(o->pid, &status, 0), o->pid);
    return status;
}

/* Everything that the process writes until it ends, as one text. */
static inline void read_all(struct other *o, char *out, size_t size)
{
    size_t n = 0;
    for (ssize_t more; n < size - 1 && (more = read(o->from, out + n, size - 1 - n)) > 0;)
        n += (size_t)more;
    out[n] = '\0';
}

static inline bool is_simulated(void)
{
    return strcmp(module->name, "cusim") == 0;
}

/* What the program does in a role; it returns the exit code. */
struct role {
    const char *name;
    int (*run)(void);
};

/* The role that the arguments name; NULL: none, the program runs its tests. */
static inline const struct role *role_of(int argc, char **argv, const struct role *roles, size_t n)
{
    for (size_t i = 0; argc > 1 && i < n; i++)
        if (strcmp(argv[1], roles[i].name) == 0)
            return &roles[i];
    return NULL;
}

#endif
