/* Filters of system calls; see calls.h. filters/make_filters.c has the lists. */
#include "confine/calls.h"

#include "call_filters.h"

#include "base/log.h"

#include <linux/seccomp.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define FILTER(name)                                                                               \
    ((struct sock_fprog){sizeof name / sizeof *name, (struct sock_filter *)(uintptr_t)name})

static _Atomic bool given_up;

static struct sock_fprog filter(enum confine_calls kind, bool keeps_uring)
{
    switch (kind) {
    case CONFINE_DRIVER:
        return keeps_uring ? FILTER(filter_of_driver_uring) : FILTER(filter_of_driver);
    case CONFINE_DAEMON:
        return keeps_uring ? FILTER(filter_of_daemon_uring) : FILTER(filter_of_daemon);
    case CONFINE_FRONTEND:
        return FILTER(filter_of_frontend);
    case CONFINE_READER:
        break;
    }
    return FILTER(filter_of_reader);
}

void confine_calls(enum confine_calls kind, bool keeps_uring)
{
#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
    return;
#endif
    struct sock_fprog program = filter(kind, keeps_uring);
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) {
        log_warn("cannot give up new privileges: %m");
        return;
    }
    long failed =
        syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program);
    if (failed > 0)
        log_warn("seccomp: cannot restrict the system calls of thread %ld", failed);
    else if (failed)
        log_warn("seccomp: cannot restrict the system calls: %m");
    else
        atomic_store(&given_up, true);
}

bool confine_calls_given_up(void)
{
    return atomic_load(&given_up);
}
