/* Tries what a confined daemon may not do, in the daemon itself: a library for LD_PRELOAD. On
 * SIGUSR2 the thread that takes the signal makes the calls below and writes each one's errno (0: it
 * succeeded) into the file $MOED_TRY_FILE, which every process maps at its start; confined.py sends
 * the signals and knows what is right for which process. */
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/sched.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

enum { MOST_TRIES = 64, NAME_BYTES = 24, PATH_BYTES = 200 };

struct tries {               /* confined.py has the same */
    char secret[PATH_BYTES]; /* a file of this user, elsewhere */
    char fresh[PATH_BYTES];  /* a file that does not exist, elsewhere */
    char model[PATH_BYTES];
    char abstract[PATH_BYTES]; /* the name of a socket that somebody listens to */
    int32_t other_process;     /* of this user */
    _Atomic uint32_t done;
    uint32_t n;
    struct {
        char name[NAME_BYTES];
        int32_t error;
    } results[MOST_TRIES];
};
_Static_assert(offsetof(struct tries, results) == 812, "confined.py has the same");

static struct tries *tries;

static void note(const char *name, long result)
{
    int error = result < 0 ? errno : 0;
    if (tries->n >= MOST_TRIES)
        return;
    strncpy(tries->results[tries->n].name, name, NAME_BYTES - 1);
    tries->results[tries->n++].error = error;
}

static void try_files(void)
{
    long fd = syscall(SYS_openat, AT_FDCWD, tries->secret, O_RDONLY);
    note("read a file", fd);
    note("write a file", syscall(SYS_openat, AT_FDCWD, tries->secret, O_WRONLY));
    note("make a file", syscall(SYS_openat, AT_FDCWD, tries->fresh, O_WRONLY | O_CREAT, 0600));
    note("remove a file", syscall(SYS_unlinkat, AT_FDCWD, tries->secret, 0));
    note("rename a file",
         syscall(SYS_renameat2, AT_FDCWD, tries->secret, AT_FDCWD, tries->fresh, 0));
    note("link a file", syscall(SYS_linkat, AT_FDCWD, tries->secret, AT_FDCWD, tries->fresh, 0));
    note("truncate a file", syscall(SYS_truncate, tries->secret, 0));
    note("make a directory", syscall(SYS_mkdirat, AT_FDCWD, tries->fresh, 0700));
    note("list the root", syscall(SYS_openat, AT_FDCWD, "/", O_RDONLY | O_DIRECTORY));
    note("read the passwords", syscall(SYS_openat, AT_FDCWD, "/etc/passwd", O_RDONLY));
    note("read the model", syscall(SYS_openat, AT_FDCWD, tries->model, O_RDONLY));
    note("write the model", syscall(SYS_openat, AT_FDCWD, tries->model, O_WRONLY));
    note("change a mode", syscall(SYS_fchmodat, AT_FDCWD, tries->secret, 0777));
    long own = syscall(SYS_socket, AF_UNIX, SOCK_STREAM, 0);
    note("change a socket's mode", syscall(SYS_fchmod, own, 04777));
    syscall(SYS_close, own);
    note("change an owner", syscall(SYS_fchownat, AT_FDCWD, tries->secret, 1, 1, 0));
    note("mount", syscall(SYS_mount, "none", "/", "tmpfs", 0, NULL));
}

static void try_sockets(void)
{
    static const int families[] = {AF_INET, AF_INET6, AF_NETLINK, AF_PACKET};
    static const char *const names[] = {"inet socket", "inet6 socket", "netlink socket",
                                        "packet socket"};
    for (int i = 0; i < 4; i++)
        note(names[i], syscall(SYS_socket, families[i], SOCK_STREAM, 0));
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    size_t len = strlen(tries->abstract);
    memcpy(to.sun_path + 1, tries->abstract, len);
    long fd = syscall(SYS_socket, AF_UNIX, SOCK_DGRAM, 0);
    note("unix socket", fd);
    note("abstract connect", syscall(SYS_connect, fd, &to, sizeof to.sun_family + 1 + len));
    syscall(SYS_close, fd);
}

static void try_processes(void)
{
    static char *const none[] = {NULL};
    char byte;
    struct iovec mine = {&byte, 1}, theirs = {&mine, 1};
    note("exec", syscall(SYS_execve, "/bin/true", none, none));
    long pid = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (pid == 0)
        syscall(SYS_exit_group, 0);
    note("fork", pid);
    note("signal another", syscall(SYS_kill, tries->other_process, 0));
    uint64_t limit[2];
    note("limit another", syscall(SYS_prlimit64, tries->other_process, RLIMIT_CPU, NULL, limit));
    note("trace another", syscall(SYS_ptrace, PTRACE_ATTACH, tries->other_process, 0, 0));
    note("read another's memory",
         syscall(SYS_process_vm_readv, tries->other_process, &mine, 1, &theirs, 1, 0));
    note("become root", syscall(SYS_setuid, 0));
    note("new namespace", syscall(SYS_unshare, CLONE_NEWUSER));
    note("dumpable", prctl(PR_GET_DUMPABLE) == 1 ? 0 : (errno = EPERM, -1));
    note("new privileges", prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 0 ? 0 : (errno = EPERM, -1));
}

static void try_kernel(void)
{
    note("bpf", syscall(SYS_bpf, 0, NULL, 0));
    note("perf", syscall(SYS_perf_event_open, NULL, 0, -1, -1, 0));
    note("userfaultfd", syscall(SYS_userfaultfd, 0));
    note("keyctl", syscall(SYS_keyctl, 0, 0, 0, 0, 0));
    note("kernel module", syscall(SYS_finit_module, -1, "", 0));
    note("set the clock", syscall(SYS_clock_settime, 0, NULL));
    note("io_uring", syscall(SYS_io_uring_setup, 0, NULL));
}

static void on_signal(int number)
{
    (void)number;
    int saved_errno = errno;
    tries->n = 0;
    try_files();
    try_sockets();
    try_processes();
    try_kernel();
    atomic_store(&tries->done, (uint32_t)syscall(SYS_gettid));
    errno = saved_errno;
}

__attribute__((constructor)) static void map_tries(void)
{
    const char *path = getenv("MOED_TRY_FILE");
    int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (fd < 0)
        return;
    void *map = mmap(NULL, sizeof *tries, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (map == MAP_FAILED)
        return;
    tries = map;
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigaction(SIGUSR2, &action, NULL);
}
