/* Makes the n-th call of one function fail in one process: a library for LD_PRELOAD, driven by
 * fault_loop.py through the file $MOED_FAULT_FILE, which every process maps. A process takes part
 * where its program's name ends with `process` ("*": always); from when the driver sets `armed`,
 * its calls of `function` are counted, and the one with number `n` (ALL: each) fails with `error`.
 * The wall clock of processes that take part is `offset_s` ahead.
 *
 * Of io_uring the completions are counted that io_uring_submit_and_wait returns; error 0 makes the
 * read shorter. */
#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <liburing.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#define ALL UINT32_MAX /* fault_loop.py has the same numbers */

enum function {
    MALLOC = 1,
    MMAP,
    FTRUNCATE,
    OPEN,
    SEND,
    RECV,
    SOCKET,
    THREAD,
    READ,
    WRITE,
    URING,
    EVENTS,
    WATCH
};

struct control { /* fault_loop.py has the same */
    _Atomic uint32_t armed, function, n, count, hits, error;
    char process[24];
    _Atomic int64_t offset_s;
};
_Static_assert(sizeof(struct control) == 56, "fault_loop.py has the same");

static struct control none;
static struct control *control = &none;
static bool takes_part;
static __thread bool inside; /* the report below may call what is counted */

static void read_process(void)
{
    char path[4096];
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
    if (n <= 0)
        return;
    path[n] = '\0';
    size_t len = strnlen(control->process, sizeof control->process);
    takes_part = len && (size_t)n >= len && strcmp(path + n - len, control->process) == 0;
    takes_part |= strcmp(control->process, "*") == 0;
}

__attribute__((constructor)) static void map_control(void)
{
    const char *path = getenv("MOED_FAULT_FILE");
    int fd = path ? (int)syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC) : -1;
    if (fd < 0)
        return;
    void *map =
        (void *)syscall(SYS_mmap, NULL, sizeof *control, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (map == MAP_FAILED)
        return;
    control = map;
    void *frames[1];
    backtrace(frames, 1); /* loads its library now */
    read_process();
}

static void report(void)
{
    static const char text[] = "-- fault_loop: this call fails:\n";
    void *frames[12];
    ssize_t written = write(STDERR_FILENO, text, sizeof text - 1);
    (void)written;
    backtrace_symbols_fd(frames, backtrace(frames, 12), STDERR_FILENO);
}

static bool fails(enum function f)
{
    if (!takes_part || inside || atomic_load(&control->function) != f ||
        !atomic_load(&control->armed))
        return false;
    uint32_t n = atomic_load(&control->n);
    if (atomic_fetch_add(&control->count, 1) + 1 != n && n != ALL)
        return false;
    inside = true;
    if (atomic_fetch_add(&control->hits, 1) == 0)
        report();
    inside = false;
    errno = (int)atomic_load(&control->error);
    return true;
}

void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t n, size_t bytes);
void *__libc_realloc(void *p, size_t bytes);
void *__libc_memalign(size_t alignment, size_t bytes);

void *malloc(size_t bytes)
{
    return fails(MALLOC) ? NULL : __libc_malloc(bytes);
}

void *calloc(size_t n, size_t bytes)
{
    return fails(MALLOC) ? NULL : __libc_calloc(n, bytes);
}

void *realloc(void *p, size_t bytes)
{
    return bytes && fails(MALLOC) ? NULL : __libc_realloc(p, bytes);
}

void *aligned_alloc(size_t alignment, size_t bytes)
{
    return fails(MALLOC) ? NULL : __libc_memalign(alignment, bytes);
}

int posix_memalign(void **out, size_t alignment, size_t bytes)
{
    if (fails(MALLOC))
        return ENOMEM;
    void *p = __libc_memalign(alignment, bytes);
    if (!p)
        return ENOMEM;
    *out = p;
    return 0;
}

/* The function that this library hides. */
#define NEXT(name)                                                                                 \
    static __typeof__(&name) next;                                                                 \
    if (!next) {                                                                                   \
        bool before = inside;                                                                      \
        inside = true;                                                                             \
        next = (__typeof__(&name))dlsym(RTLD_NEXT, #name);                                         \
        inside = before;                                                                           \
    }

#define WRAP(result, name, failed, f, parameters, arguments)                                       \
    result name parameters                                                                         \
    {                                                                                              \
        NEXT(name)                                                                                 \
        return fails(f) ? failed : next arguments;                                                 \
    }

WRAP(void *, mmap, MAP_FAILED, MMAP,
     (void *at, size_t bytes, int protection, int flags, int fd, off_t offset),
     (at, bytes, protection, flags, fd, offset))
WRAP(void *, mmap64, MAP_FAILED, MMAP,
     (void *at, size_t bytes, int protection, int flags, int fd, off64_t offset),
     (at, bytes, protection, flags, fd, offset))
WRAP(int, ftruncate, -1, FTRUNCATE, (int fd, off_t bytes), (fd, bytes))
WRAP(int, ftruncate64, -1, FTRUNCATE, (int fd, off64_t bytes), (fd, bytes))
WRAP(int, fallocate, -1, FTRUNCATE, (int fd, int mode, off_t from, off_t bytes),
     (fd, mode, from, bytes))
WRAP(int, memfd_create, -1, OPEN, (const char *name, unsigned flags), (name, flags))
WRAP(ssize_t, send, -1, SEND, (int fd, const void *data, size_t bytes, int flags),
     (fd, data, bytes, flags))
WRAP(ssize_t, sendmsg, -1, SEND, (int fd, const struct msghdr *message, int flags),
     (fd, message, flags))
WRAP(ssize_t, recv, -1, RECV, (int fd, void *data, size_t bytes, int flags),
     (fd, data, bytes, flags))
WRAP(ssize_t, recvmsg, -1, RECV, (int fd, struct msghdr *message, int flags), (fd, message, flags))
WRAP(int, socket, -1, SOCKET, (int domain, int type, int protocol), (domain, type, protocol))
WRAP(int, accept4, -1, SOCKET,
     (int fd, struct sockaddr *restrict address, socklen_t *restrict len, int flags),
     (fd, address, len, flags))
WRAP(int, inotify_init1, -1, EVENTS, (int flags), (flags))
WRAP(int, inotify_add_watch, -1, WATCH, (int fd, const char *path, uint32_t events),
     (fd, path, events))
WRAP(int, pthread_create, EAGAIN, THREAD,
     (pthread_t * thread, const pthread_attr_t *attributes, void *(*run)(void *), void *arg),
     (thread, attributes, run, arg))
WRAP(ssize_t, pread, -1, READ, (int fd, void *data, size_t bytes, off_t at), (fd, data, bytes, at))
WRAP(ssize_t, pread64, -1, READ, (int fd, void *data, size_t bytes, off64_t at),
     (fd, data, bytes, at))

WRAP(ssize_t, pwrite, -1, WRITE, (int fd, const void *data, size_t bytes, off_t at),
     (fd, data, bytes, at))
WRAP(ssize_t, pwrite64, -1, WRITE, (int fd, const void *data, size_t bytes, off64_t at),
     (fd, data, bytes, at))

/* The completions that the caller sees next. */
int io_uring_submit_and_wait(struct io_uring *ring, unsigned n)
{
    NEXT(io_uring_submit_and_wait)
    int submitted = next(ring, n);
    struct io_uring_cqe *c;
    unsigned head;
    io_uring_for_each_cqe(ring, head, c)
    {
        if (c->res > 0 && fails(URING))
            c->res = errno ? -errno : c->res / 2;
    }
    return submitted;
}

/* ---- The wall clock ---- */

int clock_gettime(clockid_t clock, struct timespec *out)
{
    NEXT(clock_gettime)
    int result = next(clock, out);
    if (result == 0 && takes_part && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        out->tv_sec += (time_t)atomic_load(&control->offset_s);
    return result;
}

time_t time(time_t *out)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (out)
        *out = now.tv_sec;
    return now.tv_sec;
}

static mode_t mode_of(int flags, va_list more)
{
    return flags & (O_CREAT | O_TMPFILE) ? va_arg(more, mode_t) : 0;
}

/* A read-only file system refuses those who want to write. */
static bool open_fails(int flags)
{
    bool writes = flags & (O_WRONLY | O_RDWR | O_CREAT | O_TRUNC);
    return (writes || atomic_load(&control->error) != EROFS) && fails(OPEN);
}

#define WRAP_OPEN(name)                                                                            \
    int name(const char *path, int flags, ...)                                                     \
    {                                                                                              \
        va_list more;                                                                              \
        va_start(more, flags);                                                                     \
        mode_t mode = mode_of(flags, more);                                                        \
        va_end(more);                                                                              \
        NEXT(name)                                                                                 \
        return open_fails(flags) ? -1 : next(path, flags, mode);                                   \
    }
WRAP_OPEN(open)
WRAP_OPEN(open64)

#define WRAP_OPENAT(name)                                                                          \
    int name(int at, const char *path, int flags, ...)                                             \
    {                                                                                              \
        va_list more;                                                                              \
        va_start(more, flags);                                                                     \
        mode_t mode = mode_of(flags, more);                                                        \
        va_end(more);                                                                              \
        NEXT(name)                                                                                 \
        return open_fails(flags) ? -1 : next(at, path, flags, mode);                               \
    }
WRAP_OPENAT(openat)
WRAP_OPENAT(openat64)
