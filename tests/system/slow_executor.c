/* slow-executor RUN: takes the place of a deployment's CPU executor until it is killed. It accepts
 * jobs of workers and reports progress, but never completes a job. Prints a line when it
 * listens. */
#include "daemon/run_dir.h"
#include "ipc/expert_channel.h"
#include "ipc/lease.h"
#include "ipc/shm.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void must(enum error_code code, const struct error *e)
{
    if (!code)
        return;
    fprintf(stderr, "slow-executor: %s\n", e->text);
    exit(1);
}

/* Runs until the worker detaches. */
static enum error_code serve(int fd, struct error *e)
{
    struct lease_message offer, answer = {.magic = LEASE_MAGIC, .kind = EXPERT_ACCEPT};
    int fds[LEASE_MAX_FDS];
    unsigned n_fds = 0;
    struct shm shm;
    struct expert_channel channel;
    enum error_code code = lease_receive(fd, &offer, fds, LEASE_MAX_FDS, &n_fds, 2000, e);
    if (code)
        return code;
    if (n_fds != 1)
        return error_set(e, ERROR_PROTOCOL, "no region was offered");
    code = shm_map(fds[0], true, offer.value[0], &shm, e);
    if (code)
        return code;
    code = expert_channel_attach(&channel, shm.base, shm.bytes, e);
    if (!code)
        code = lease_send(fd, &answer, NULL, 0, e);
    struct expert_job job;
    while (!code && poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, 50) == 0) {
        if (ring_pop(&channel.jobs, &job) == 1)
            atomic_store(&channel.header->computing, job.sequence);
        atomic_fetch_add(&channel.header->progress, 1);
    }
    shm_close(&shm);
    return code;
}

int main(int argc, char **argv)
{
    char path[RUN_PATH_BYTES];
    struct error e;
    int listen_fd;
    if (argc != 2)
        return 2;
    run_dir_file(argv[1], "cpuexec.lease", path);
    unlink(path); /* the socket of the stopped executor */
    must(lease_listen(path, &listen_fd, &e), &e);
    printf("listening\n");
    fflush(stdout);
    for (;;) {
        int fd;
        struct lease_peer peer;
        must(lease_accept(listen_fd, &fd, &peer, &e), &e);
        if (serve(fd, &e))
            fprintf(stderr, "slow-executor: %s\n", e.text);
        if (peer.pidfd >= 0)
            close(peer.pidfd);
        close(fd);
    }
}
