/* Confinement; see confine.h.
 *
 *   capabilities   none are left
 *   landlock       files: reading in the directory of the deployments, sockets in RUN, /proc and
 *                  /sys; from its versions 4 and 6 on also no TCP connection, no abstract socket
 * and no signal beyond this process
 *   seccomp        the system calls below; sockets only of the family AF_UNIX; threads, no programs */
#include "client/http/confine.h"

#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <linux/capability.h>
#include <linux/landlock.h>
#include <sched.h>
#include <seccomp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

/* ---- Capabilities ---- */

static void drop_capabilities(void)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct none[2] = {{0}};
    for (int i = 0; prctl(PR_CAPBSET_READ, i) >= 0; i++)
        prctl(PR_CAPBSET_DROP, i); /* not allowed without CAP_SETPCAP: then there are none */
    if (syscall(SYS_capset, &header, none) != 0)
        log_warn("cannot drop the capabilities: %m");
}

/* ---- Landlock ---- */

/* Of later kernels than Debian 12's headers (linux/landlock.h, versions 2 to 6). */
#define FS_REFER    (1ull << 13)
#define FS_TRUNCATE (1ull << 14)
#define FS_IOCTL    (1ull << 15)
#define NET_ALL     3ull /* bind and connect of TCP */
#define SCOPE_ALL   3ull /* abstract unix sockets, signals */

struct ruleset {
    uint64_t fs, net, scope;
};

#define FS_READ    (LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR)
#define FS_SOCKETS (FS_READ | LANDLOCK_ACCESS_FS_MAKE_SOCK | LANDLOCK_ACCESS_FS_REMOVE_FILE)

static uint64_t all_fs(long version)
{
    uint64_t all = (LANDLOCK_ACCESS_FS_MAKE_SYM << 1) - 1;
    all |= version >= 2 ? FS_REFER : 0;
    all |= version >= 3 ? FS_TRUNCATE : 0;
    return all | (version >= 5 ? FS_IOCTL : 0);
}

static void allow(int ruleset, const char *path, uint64_t access)
{
    struct landlock_path_beneath_attr rule = {.allowed_access = access,
                                              .parent_fd = open(path, O_PATH | O_CLOEXEC)};
    if (rule.parent_fd < 0)
        return;
    if (syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, &rule, 0) != 0)
        log_warn("landlock: cannot allow %s: %m", path);
    close(rule.parent_fd);
}

/* Where the deployments are: beside RUN, unless $MOED_RUN is the only one. */
static void allow_deployments(int ruleset, const char *run)
{
    const char *only = getenv("MOED_RUN");
    char parent[PATH_MAX];
    snprintf(parent, sizeof parent, "%s", run);
    allow(ruleset, only && *only ? only : dirname(parent), FS_READ);
    allow(ruleset, run, FS_SOCKETS);
}

static void restrict_files(const char *run)
{
    long version = syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
    if (version < 1) {
        log_info("this kernel has no landlock: the frontend can read its user's files");
        return;
    }
    struct ruleset r = {.fs = all_fs(version),
                        .net = version >= 4 ? NET_ALL : 0,
                        .scope = version >= 6 ? SCOPE_ALL : 0};
    size_t bytes = version >= 6 ? sizeof r : version >= 4 ? 16 : 8;
    int ruleset = (int)syscall(SYS_landlock_create_ruleset, &r, bytes, 0);
    if (ruleset < 0) {
        log_warn("landlock: cannot create a ruleset: %m");
        return;
    }
    allow_deployments(ruleset, run);
    allow(ruleset, "/proc", FS_READ);
    allow(ruleset, "/sys/devices/system", FS_READ); /* how many processors there are */
    if (syscall(SYS_landlock_restrict_self, ruleset, 0) != 0)
        log_warn("landlock: cannot restrict the process: %m");
    close(ruleset);
}

/* ---- Seccomp ---- */

/* Names, as not every architecture has every call. */
static const char *const allowed[] = {
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
    "chmod",
    "fchmod",
    "fchmodat",
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
    "prlimit64",
    "getrlimit",
    "sysinfo",
    "uname",
    "prctl",
    "times",
};

static int add_rules(scmp_filter_ctx filter)
{
    static const struct scmp_arg_cmp unix_socket = {
        .arg = 0, .op = SCMP_CMP_EQ, .datum_a = AF_UNIX};
    static const struct scmp_arg_cmp thread = {
        .arg = 0, .op = SCMP_CMP_MASKED_EQ, .datum_a = CLONE_THREAD, .datum_b = CLONE_THREAD};
    int failed = 0;
    for (size_t i = 0; i < sizeof allowed / sizeof *allowed && !failed; i++) {
        int number = seccomp_syscall_resolve_name(allowed[i]);
        if (number != __NR_SCMP_ERROR)
            failed = seccomp_rule_add(filter, SCMP_ACT_ALLOW, number, 0);
    }
    if (!failed)
        failed = seccomp_rule_add_array(filter, SCMP_ACT_ALLOW, SCMP_SYS(socket), 1, &unix_socket);
    if (!failed)
        failed = seccomp_rule_add_array(filter, SCMP_ACT_ALLOW, SCMP_SYS(clone), 1, &thread);
    /* Its flags lie in memory, where a filter cannot look; glibc then uses clone. */
    return failed ? failed : seccomp_rule_add(filter, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(clone3), 0);
}

static void restrict_calls(void)
{
    scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ERRNO(EPERM));
    int failed = filter ? 0 : -ENOMEM;
    if (!failed) /* the threads that run already too */
        failed = seccomp_attr_set(filter, SCMP_FLTATR_CTL_TSYNC, 1);
    if (!failed)
        failed = add_rules(filter);
    if (!failed)
        failed = seccomp_load(filter);
    if (failed)
        log_warn("seccomp: cannot restrict the system calls: %s", strerror(-failed));
    seccomp_release(filter);
}

void confine(const char *run)
{
    drop_capabilities();
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) {
        log_warn("cannot give up new privileges: %m");
        return;
    }
    restrict_files(run);
    restrict_calls();
}
