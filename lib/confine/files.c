/* Landlock; see files.h. Documentation: the kernel's userspace-api/landlock.rst. */
#include "confine/files.h"

#include "base/log.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/landlock.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Of later kernels than Debian 12's headers (linux/landlock.h, versions 2 to 6). */
#define FS_REFER    (1ull << 13)
#define FS_TRUNCATE (1ull << 14)
#define FS_IOCTL    (1ull << 15)
#define NET_ALL     3ull /* bind and connect of TCP */
#define SCOPE_ALL   3ull /* abstract unix sockets, signals */

struct ruleset {
    uint64_t fs, net, scope;
};

#define FS_READ (LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR)
#define FS_WRITE                                                                                   \
    (LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_MAKE_REG | LANDLOCK_ACCESS_FS_REMOVE_FILE)
#define FS_SOCKETS (LANDLOCK_ACCESS_FS_MAKE_SOCK | LANDLOCK_ACCESS_FS_REMOVE_FILE)
/* The rights that a rule for a file, and not a directory, may have. */
#define FS_OF_FILE (LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_WRITE_FILE | FS_TRUNCATE)

static long version(void)
{
#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
    return 0; /* their reports read files and start programs */
#endif
    return syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
}

bool confine_files_possible(void)
{
    return version() >= 1;
}

static uint64_t all_fs(void)
{
    uint64_t all = (LANDLOCK_ACCESS_FS_MAKE_SYM << 1) - 1;
    long v = version();
    all |= v >= 2 ? FS_REFER : 0;
    all |= v >= 3 ? FS_TRUNCATE : 0;
    return all | (v >= 5 ? FS_IOCTL : 0);
}

void confine_files_begin(struct confine_files *f)
{
    long v = version();
    f->ruleset = -1;
    if (v < 1) {
        log_info("this kernel has no landlock: the process can open all files of its user");
        return;
    }
    struct ruleset r = {
        .fs = all_fs(), .net = v >= 4 ? NET_ALL : 0, .scope = v >= 6 ? SCOPE_ALL : 0};
    size_t bytes = v >= 6 ? sizeof r : v >= 4 ? 16 : 8;
    f->ruleset = (int)syscall(SYS_landlock_create_ruleset, &r, bytes, 0);
    if (f->ruleset < 0)
        log_warn("landlock: cannot make a ruleset: %m");
}

static uint64_t rights_of(unsigned access)
{
    uint64_t rights = access & CONFINE_READ ? FS_READ : 0;
    if (access & CONFINE_WRITE)
        rights |= FS_WRITE | FS_TRUNCATE;
    if (access & CONFINE_SOCKETS)
        rights |= FS_SOCKETS;
    return rights & all_fs();
}

void confine_files_allow(struct confine_files *f, const char *path, unsigned access)
{
    struct stat s;
    struct landlock_path_beneath_attr rule = {.allowed_access = rights_of(access), .parent_fd = -1};
    if (f->ruleset >= 0 && path)
        rule.parent_fd = open(path, O_PATH | O_CLOEXEC);
    if (rule.parent_fd < 0)
        return;
    if (fstat(rule.parent_fd, &s) == 0 && !S_ISDIR(s.st_mode))
        rule.allowed_access &= FS_OF_FILE;
    if (syscall(SYS_landlock_add_rule, f->ruleset, LANDLOCK_RULE_PATH_BENEATH, &rule, 0) != 0)
        log_warn("landlock: cannot allow %s: %m", path);
    close(rule.parent_fd);
}

void confine_files_allow_daemon(struct confine_files *f, const char *run)
{
    static const char *const read[] = {"/proc", "/sys",   "/usr/lib",       "/usr/lib64",
                                       "/lib",  "/lib64", "/usr/local/lib", "/etc/ld.so.cache"};
    for (size_t i = 0; i < sizeof read / sizeof *read; i++)
        confine_files_allow(f, read[i], CONFINE_READ);
    confine_files_allow(f, run, CONFINE_READ | CONFINE_WRITE | CONFINE_SOCKETS);
    confine_files_allow(f, "/proc/self/task", CONFINE_WRITE); /* names of threads */
    confine_files_allow(f, "/dev/null", CONFINE_READ | CONFINE_WRITE);
    confine_files_allow(f, "/dev/urandom", CONFINE_READ);
}

static unsigned count_threads(void)
{
    unsigned n = 0;
    DIR *dir = opendir("/proc/self/task");
    for (struct dirent *entry; dir && (entry = readdir(dir));)
        n += entry->d_name[0] != '.';
    if (dir)
        closedir(dir);
    return n;
}

void confine_files_end(struct confine_files *f)
{
    if (f->ruleset < 0)
        return;
    if (count_threads() > 1)
        log_warn("a library has started threads already: their files are not restricted");
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        syscall(SYS_landlock_restrict_self, f->ruleset, 0) != 0)
        log_warn("landlock: cannot restrict the process: %m");
    close(f->ruleset);
    f->ruleset = -1;
}
