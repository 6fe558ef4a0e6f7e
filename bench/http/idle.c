/* Waiting streams; see idle.h. */
#include "idle.h"

#include "ways.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define GENERATE  900 /* more than the worker computes before it is stopped */
#define SETTLE_S  2   /* until moed-http has read what the worker sent before it stopped */
#define ANSWER_MS 30000

static double resident_bytes(pid_t pid)
{
    char path[64];
    unsigned long pages = 0;
    snprintf(path, sizeof path, "/proc/%d/statm", (int)pid);
    FILE *f = fopen(path, "re");
    if (!f || fscanf(f, "%*u %lu", &pages) != 1)
        fprintf(stderr, "bench-http: cannot read %s\n", path);
    if (f)
        fclose(f);
    return (double)pages * (double)sysconf(_SC_PAGESIZE);
}

/* User and system time: fields 14 and 15 of /proc/PID/stat. The name, in parentheses, has no blank.
 */
static double cpu_s(pid_t pid)
{
    char path[64];
    unsigned long user = 0, system = 0;
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *f = fopen(path, "re");
    if (!f || fscanf(f, "%*d %*s %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user,
                     &system) != 2)
        fprintf(stderr, "bench-http: cannot read %s\n", path);
    if (f)
        fclose(f);
    return (double)(user + system) / (double)sysconf(_SC_CLK_TCK);
}

/* A request is there for moed-http once it answers another one on a later connection. */
static bool is_through(unsigned port)
{
    char reply[64];
    int fd = connect_to(port);
    static const char request[] = "GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n";
    struct pollfd p = {.fd = fd, .events = POLLIN};
    bool good = fd >= 0 && write(fd, request, sizeof request - 1) > 0 &&
                poll(&p, 1, ANSWER_MS) == 1 && read(fd, reply, sizeof reply) > 0;
    if (fd >= 0)
        close(fd);
    return good;
}

static bool open_streams(const struct idle_plan *plan, int *fds, uint32_t *opened)
{
    uint32_t prompt[4] = {1, 2, 3, 4};
    for (*opened = 0; *opened < plan->streams; ++*opened) {
        int fd = connect_to(plan->port);
        prompt[3] = 5 + *opened % 100;
        if (fd < 0)
            return false;
        fds[*opened] = fd;
        if (!send_request(fd, prompt, 4, GENERATE)) {
            ++*opened;
            return false;
        }
    }
    return is_through(plan->port);
}

bool idle_measure(const struct idle_plan *plan, struct idle_cost *out)
{
    int *fds = calloc(plan->streams, sizeof *fds);
    uint32_t opened = 0;
    double before = resident_bytes(plan->http);
    bool good = fds && open_streams(plan, fds, &opened);
    kill(plan->worker, SIGSTOP);
    sleep(SETTLE_S);
    double cpu = cpu_s(plan->http);
    sleep(plan->wait_s);
    out->cpu_percent = 100 * (cpu_s(plan->http) - cpu) / plan->wait_s;
    out->bytes = (resident_bytes(plan->http) - before) / plan->streams;
    kill(plan->worker, SIGCONT);
    for (uint32_t i = 0; i < opened; i++)
        close(fds[i]);
    free(fds);
    return good;
}
