/* Writes the filters of system calls as a C header, for calls.c: while moed is built, because
 * libseccomp makes thousands of allocations for a filter and does not survive one that fails.
 *   moed-make-filters > call_filters.h
 * Lists hold names, as not every architecture has every call. */
#include "confine/calls.h"

#include <errno.h>
#include <linux/filter.h>
#include <sched.h>
#include <seccomp.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- What may be called ---- */

/* Memory, and descriptors that are open. Also what ends a process, and what its report of a crash
 * needs. */
static const char *const reader[] = {
    "brk",         "clock_gettime",   "close",        "exit",           "exit_group",
    "fstat",       "ftruncate",       "futex",        "getpid",         "getrandom",
    "gettid",      "lseek",           "madvise",      "mmap",           "mprotect",
    "mremap",      "munmap",          "newfstatat",   "pread64",        "preadv2",
    "read",        "restart_syscall", "rt_sigaction", "rt_sigprocmask", "rt_sigreturn",
    "sched_yield", "sigaltstack",     "tgkill",       "write",          "writev",
};

/* A process that reads files and serves sockets. */
static const char *const frontend[] = {
    /* descriptors */
    "read",
    "write",
    "readv",
    "writev",
    "pread64",
    "pwrite64",
    "close",
    "lseek",
    "dup",
    "dup3",
    "fcntl",
    "ioctl",
    "poll",
    "ppoll",
    "select",
    "pselect6",
    "epoll_wait",
    "epoll_pwait",
    "epoll_pwait2",
    "epoll_ctl",
    "epoll_create1",
    "eventfd2",
    "pipe2",
    "timerfd_create",
    "timerfd_settime",
    /* files */
    "open",
    "openat",
    "access",
    "faccessat",
    "faccessat2",
    "stat",
    "lstat",
    "fstat",
    "newfstatat",
    "statx",
    "fstatfs",
    "statfs",
    "getdents64",
    "readlink",
    "readlinkat",
    "getcwd",
    "unlink",
    "unlinkat",
    "umask",
    /* `fchmod` below */
    /* sockets; `socket` below */
    "connect",
    "accept",
    "accept4",
    "bind",
    "listen",
    "shutdown",
    "getsockname",
    "getpeername",
    "setsockopt",
    "getsockopt",
    "sendto",
    "recvfrom",
    "sendmsg",
    "recvmsg",
    "sendmmsg",
    "sendfile",
    /* memory */
    "brk",
    "mmap",
    "munmap",
    "mremap",
    "mprotect",
    "madvise",
    "membarrier",
    /* threads, signals, time */
    "futex",
    "set_robust_list",
    "rseq",
    "set_tid_address",
    "exit",
    "exit_group",
    "sched_yield",
    "sched_getaffinity",
    "rt_sigaction",
    "rt_sigprocmask",
    "rt_sigreturn",
    "rt_sigtimedwait",
    "sigaltstack",
    "restart_syscall",
    "tgkill",
    "gettid",
    "getpid",
    "getppid",
    "nanosleep",
    "clock_nanosleep",
    "clock_gettime",
    "clock_getres",
    "gettimeofday",
    /* the process */
    "getuid",
    "geteuid",
    "getgid",
    "getegid",
    "getrandom",
    "getrusage",
    /* `prlimit64` below */
    "getrlimit",
    "sysinfo",
    "uname",
    "prctl",
    "times",
};

/* A process that also writes files, and places memory and threads. */
static const char *const daemon_too[] = {
    /* files */
    "copy_file_range",
    "fadvise64",
    "fallocate",
    "fdatasync",
    "flock",
    "fsync",
    "ftruncate",
    "mkdir",
    "mkdirat",
    "preadv",
    "preadv2",
    "pwritev",
    "pwritev2",
    "readahead",
    "rename",
    "renameat",
    "renameat2",
    "sync_file_range",
    /* notifications, sockets */
    "inotify_add_watch",
    "inotify_init1",
    "inotify_rm_watch",
    "pidfd_open",
    "recvmmsg",
    "signalfd4",
    "socketpair",
    /* memory */
    "get_mempolicy",
    "mbind",
    "memfd_create",
    "mincore",
    "mlock",
    "mlock2",
    "move_pages",
    "msync",
    "munlock",
    "set_mempolicy",
    /* threads, time */
    "futex_waitv",
    "getcpu",
    "getpriority",
    "rt_sigpending",
    "rt_sigqueueinfo",
    "rt_sigsuspend",
    "rt_tgsigqueueinfo",
    "sched_getparam",
    "sched_getscheduler",
    "sched_setaffinity",
    "sched_setscheduler",
    "setpriority",
    "timer_create",
    "timer_delete",
    "timer_settime",
    "timerfd_gettime",
};

static const char *const uring[] = {"io_uring_enter", "io_uring_register", "io_uring_setup"};

/* ---- What may not be called beside a GPU's driver ---- */

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

/* ---- Filters ---- */

#define COUNT(list) (sizeof(list) / sizeof *(list))

static int add_all(scmp_filter_ctx filter, uint32_t action, const char *const *names, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        int number = seccomp_syscall_resolve_name(names[i]);
        int failed = number == __NR_SCMP_ERROR ? 0 : seccomp_rule_add(filter, action, number, 0);
        if (failed && failed != -EEXIST)
            return failed;
    }
    return 0;
}

/* clone3's flags lie in memory, where a filter cannot look; glibc then uses clone. */
static int refuse_clone3(scmp_filter_ctx filter)
{
    return seccomp_rule_add(filter, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(clone3), 0);
}

static int add_forbidden(scmp_filter_ctx filter, bool keeps_uring)
{
    static const struct scmp_arg_cmp elsewhere = {.arg = 0, .op = SCMP_CMP_NE, .datum_a = AF_UNIX};
    static const struct scmp_arg_cmp process = {
        .arg = 0, .op = SCMP_CMP_MASKED_EQ, .datum_a = CLONE_THREAD, .datum_b = 0};
    const uint32_t refuse = SCMP_ACT_ERRNO(EPERM);
    static const struct scmp_arg_cmp another = {.arg = 0, .op = SCMP_CMP_NE, .datum_a = 0};
    int failed = add_all(filter, refuse, forbidden, COUNT(forbidden));
    if (!failed)
        failed = seccomp_rule_add_array(filter, refuse, SCMP_SYS(prlimit64), 1, &another);
    if (!failed && !keeps_uring)
        failed = add_all(filter, refuse, uring, COUNT(uring));
    if (!failed)
        failed = seccomp_rule_add_array(filter, refuse, SCMP_SYS(socket), 1, &elsewhere);
    if (!failed)
        failed = seccomp_rule_add_array(filter, refuse, SCMP_SYS(clone), 1, &process);
    return failed ? failed : refuse_clone3(filter);
}

/* Calls whose arguments decide. Limits of other processes could end them: prlimit64 is for this
 * one. A socket that is made is for this user alone; other modes, such as set-user-id, are for
 * files. */
static int add_by_arguments(scmp_filter_ctx filter)
{
    static const struct scmp_arg_cmp self = {.arg = 0, .op = SCMP_CMP_EQ, .datum_a = 0};
    static const struct scmp_arg_cmp own = {.arg = 1, .op = SCMP_CMP_EQ, .datum_a = 0600};
    static const struct scmp_arg_cmp local = {.arg = 0, .op = SCMP_CMP_EQ, .datum_a = AF_UNIX};
    static const struct scmp_arg_cmp thread = {
        .arg = 0, .op = SCMP_CMP_MASKED_EQ, .datum_a = CLONE_THREAD, .datum_b = CLONE_THREAD};
    int failed = seccomp_rule_add_array(filter, SCMP_ACT_ALLOW, SCMP_SYS(socket), 1, &local);
    if (!failed)
        failed = seccomp_rule_add_array(filter, SCMP_ACT_ALLOW, SCMP_SYS(prlimit64), 1, &self);
    if (!failed)
        failed = seccomp_rule_add_array(filter, SCMP_ACT_ALLOW, SCMP_SYS(fchmod), 1, &own);
    if (!failed)
        failed = seccomp_rule_add_array(filter, SCMP_ACT_ALLOW, SCMP_SYS(clone), 1, &thread);
    return failed ? failed : refuse_clone3(filter);
}

static int add_allowed(scmp_filter_ctx filter, enum confine_calls kind, bool keeps_uring)
{
    int failed = add_all(filter, SCMP_ACT_ALLOW, reader, COUNT(reader));
    if (kind == CONFINE_READER || failed)
        return failed;
    failed = add_all(filter, SCMP_ACT_ALLOW, frontend, COUNT(frontend));
    if (!failed && kind != CONFINE_FRONTEND)
        failed = add_all(filter, SCMP_ACT_ALLOW, daemon_too, COUNT(daemon_too));
    if (!failed && keeps_uring)
        failed = add_all(filter, SCMP_ACT_ALLOW, uring, COUNT(uring));
    return failed ? failed : add_by_arguments(filter);
}

static int add_rules(scmp_filter_ctx filter, enum confine_calls kind, bool keeps_uring)
{
    return kind == CONFINE_DRIVER ? add_forbidden(filter, keeps_uring)
                                  : add_allowed(filter, kind, keeps_uring);
}

/* ---- The header ---- */

/* From libseccomp, which writes to a descriptor. */
static bool print_instructions(scmp_filter_ctx filter, const char *name)
{
    struct sock_filter i = {0};
    FILE *f = tmpfile();
    if (!f || seccomp_export_bpf(filter, fileno(f)))
        return false;
    rewind(f);
    printf("static const struct sock_filter %s[] = {\n", name);
    while (fread(&i, sizeof i, 1, f) == 1)
        printf("    {0x%02x, %u, %u, 0x%08x},\n", i.code, i.jt, i.jf, i.k);
    printf("};\n");
    bool whole = !ferror(f) && i.code == (BPF_RET | BPF_K);
    fclose(f);
    return whole;
}

static bool print_filter(const char *name, enum confine_calls kind, bool keeps_uring)
{
    uint32_t others = kind == CONFINE_DRIVER ? SCMP_ACT_ALLOW : SCMP_ACT_ERRNO(EPERM);
    scmp_filter_ctx filter = seccomp_init(others);
    bool ok =
        filter && add_rules(filter, kind, keeps_uring) == 0 && print_instructions(filter, name);
    seccomp_release(filter);
    return ok;
}

int main(void)
{
    printf("/* Made by make_filters.c. */\n#include <linux/filter.h>\n\n");
    bool ok = print_filter("filter_of_driver", CONFINE_DRIVER, false) &&
              print_filter("filter_of_driver_uring", CONFINE_DRIVER, true) &&
              print_filter("filter_of_daemon", CONFINE_DAEMON, false) &&
              print_filter("filter_of_daemon_uring", CONFINE_DAEMON, true) &&
              print_filter("filter_of_frontend", CONFINE_FRONTEND, false) &&
              print_filter("filter_of_reader", CONFINE_READER, false);
    if (!ok || fflush(stdout)) {
        fprintf(stderr, "moed-make-filters: cannot make the filters of system calls\n");
        return 1;
    }
    return 0;
}
