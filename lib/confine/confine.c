/* Confinement by seccomp; see confine.h. */
#include "confine/confine.h"

#include "base/log.h"

#include <errno.h>
#include <sched.h>
#include <seccomp.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>

/* Names, as not every architecture has every call. */
static const char *const forbidden[] = {
    /* programs and processes; `clone` below */
    "execve",
    "execveat",
    "fork",
    "vfork",
    "pidfd_getfd",
    "ptrace",
    "process_vm_readv",
    "process_vm_writev",
    "process_madvise",
    /* namespaces and file systems */
    "chroot",
    "fsconfig",
    "fsmount",
    "fsopen",
    "fspick",
    "mount",
    "mount_setattr",
    "move_mount",
    "open_by_handle_at",
    "open_tree",
    "pivot_root",
    "quotactl",
    "quotactl_fd",
    "setns",
    "swapoff",
    "swapon",
    "umount2",
    "unshare",
    /* other users */
    "setfsgid",
    "setfsuid",
    "setgid",
    "setgroups",
    "setregid",
    "setresgid",
    "setresuid",
    "setreuid",
    "setuid",
    /* the machine */
    "acct",
    "adjtimex",
    "clock_adjtime",
    "clock_settime",
    "delete_module",
    "finit_module",
    "init_module",
    "ioperm",
    "iopl",
    "kexec_file_load",
    "kexec_load",
    "reboot",
    "setdomainname",
    "sethostname",
    "settimeofday",
    "syslog",
    "vhangup",
    /* interfaces of the kernel that faults are found in */
    "add_key",
    "bpf",
    "fanotify_init",
    "keyctl",
    "lookup_dcookie",
    "perf_event_open",
    "request_key",
    "userfaultfd",
};

/* Sockets made by io_uring do not pass a filter of calls. */
static const char *const uring[] = {"io_uring_enter", "io_uring_register", "io_uring_setup"};

static int forbid(scmp_filter_ctx filter, const char *const *names, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        int number = seccomp_syscall_resolve_name(names[i]);
        int failed = number == __NR_SCMP_ERROR
                         ? 0
                         : seccomp_rule_add(filter, SCMP_ACT_ERRNO(EPERM), number, 0);
        if (failed)
            return failed;
    }
    return 0;
}

static int add_rules(scmp_filter_ctx filter, bool uses_uring)
{
    static const struct scmp_arg_cmp elsewhere = {.arg = 0, .op = SCMP_CMP_NE, .datum_a = AF_UNIX};
    static const struct scmp_arg_cmp process = {
        .arg = 0, .op = SCMP_CMP_MASKED_EQ, .datum_a = CLONE_THREAD, .datum_b = 0};
    int failed = forbid(filter, forbidden, sizeof forbidden / sizeof *forbidden);
    if (!failed && !uses_uring)
        failed = forbid(filter, uring, sizeof uring / sizeof *uring);
    if (!failed)
        failed =
            seccomp_rule_add_array(filter, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(socket), 1, &elsewhere);
    if (!failed)
        failed =
            seccomp_rule_add_array(filter, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(clone), 1, &process);
    /* Its flags lie in memory, where a filter cannot look; glibc then uses clone. */
    return failed ? failed : seccomp_rule_add(filter, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(clone3), 0);
}

void confine_daemon(bool uses_uring)
{
#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
    return;
#endif
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) {
        log_warn("cannot give up new privileges: %m");
        return;
    }
    scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ALLOW);
    int failed = filter ? 0 : -ENOMEM;
    if (!failed) /* the threads that run already too */
        failed = seccomp_attr_set(filter, SCMP_FLTATR_CTL_TSYNC, 1);
    if (!failed)
        failed = add_rules(filter, uses_uring);
    if (!failed)
        failed = seccomp_load(filter);
    if (failed)
        log_warn("seccomp: cannot restrict the system calls: %s", strerror(-failed));
    seccomp_release(filter);
}
