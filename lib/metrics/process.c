/* Prometheus' standard process metrics, from /proc (proc(5) numbers the fields). */
#include "metrics/process.h"

#include "metrics/metrics.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

uint64_t metrics_resident_bytes(void)
{
    FILE *f = fopen("/proc/self/statm", "re");
    if (f == NULL)
        return 0;
    unsigned long long pages = 0;
    int n = fscanf(f, "%*u %llu", &pages);
    fclose(f);
    return n == 1 ? (uint64_t)pages * (uint64_t)sysconf(_SC_PAGESIZE) : 0;
}

static double cpu_seconds(void)
{
    struct timespec t = {0};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* When this process started, after the boot, in clock ticks: field 22 of stat. 0: unknown. */
static unsigned long long start_ticks(void)
{
    char text[1024];
    FILE *f = fopen("/proc/self/stat", "re");
    if (f == NULL)
        return 0;
    size_t n = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    text[n] = 0;
    const char *p = strrchr(text, ')'); /* the name (field 2) may hold anything */
    unsigned long long ticks = 0;
    if (p == NULL || sscanf(p + 1,
                            " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d "
                            "%*d %*d %llu",
                            &ticks) != 1)
        return 0;
    return ticks;
}

static unsigned long long boot_time(void)
{
    FILE *f = fopen("/proc/stat", "re");
    if (f == NULL)
        return 0;
    char line[8192];
    unsigned long long seconds = 0;
    while (fgets(line, sizeof line, f) != NULL)
        if (sscanf(line, "btime %llu", &seconds) == 1)
            break;
    fclose(f);
    return seconds;
}

/* -1: unknown. */
static int open_fds(void)
{
    DIR *d = opendir("/proc/self/fd");
    if (d == NULL)
        return -1;
    int n = 0;
    for (struct dirent *entry; (entry = readdir(d)) != NULL;)
        n += entry->d_name[0] != '.';
    closedir(d);
    return n - 1; /* without the directory's own */
}

static void head(struct strbuf *out, const char *name, const char *type, const char *help)
{
    strbuf_printf(out, "# HELP %s %s\n# TYPE %s %s\n%s", name, help, name, type, name);
}

void process_render(struct strbuf *out)
{
    uint64_t resident = metrics_resident_bytes();
    if (resident > 0) {
        head(out, "process_resident_memory_bytes", "gauge", "Resident memory, private and shared.");
        strbuf_printf(out, " %" PRIu64 "\n", resident);
    }
    head(out, "process_cpu_seconds_total", "counter", "CPU time used, user and system.");
    strbuf_printf(out, " %.6f\n", cpu_seconds());
    unsigned long long ticks = start_ticks(), boot = boot_time();
    long ticks_per_s = sysconf(_SC_CLK_TCK);
    if (ticks > 0 && boot > 0 && ticks_per_s > 0) {
        head(out, "process_start_time_seconds", "gauge", "Start of the process, since the epoch.");
        strbuf_printf(out, " %.2f\n", (double)boot + (double)ticks / (double)ticks_per_s);
    }
    struct rlimit most;
    int fds = open_fds();
    if (fds >= 0) {
        head(out, "process_open_fds", "gauge", "Open file descriptors.");
        strbuf_printf(out, " %d\n", fds);
    }
    if (getrlimit(RLIMIT_NOFILE, &most) == 0 && most.rlim_cur != RLIM_INFINITY) {
        head(out, "process_max_fds", "gauge", "The most open file descriptors.");
        strbuf_printf(out, " %" PRIu64 "\n", (uint64_t)most.rlim_cur);
    }
    head(out, "moed_build_info", "gauge", "Always 1; the labels name the build.");
    strbuf_printf(out, "{version=\"%s\"} 1\n", MOED_VERSION);
}
