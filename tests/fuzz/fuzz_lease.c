/* Fuzz target of what a peer sends on a lease socket: packets, each with a length (1 byte), a
 * number of descriptors (1 byte) and bytes, of which 255 stands for a whole message of the right
 * magic. Whatever comes, no descriptor stays open, and only messages of the right form are taken.
 */
#include "ipc/lease.h"
#include "ipc/lease_offer.h"
#include "ipc/shm.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MOST_FDS = 12, MOST_PACKETS = 8, KIND = 0x100 };

static void require(bool holds)
{
    if (!holds)
        abort();
}

/* The lowest descriptor that is free: the same before and after, unless one leaks. */
static int free_fd(void)
{
    int fd = dup(0);
    if (fd < 0)
        fd = open("/dev/null", O_RDONLY);
    close(fd);
    return fd;
}

static void send_packet(int to, int carried, const void *data, size_t bytes, unsigned n_fds)
{
    union {
        char space[CMSG_SPACE(MOST_FDS * sizeof(int))];
        struct cmsghdr align;
    } control = {0};
    struct iovec part = {(void *)(uintptr_t)data, bytes};
    struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1};
    n_fds %= MOST_FDS + 1;
    if (n_fds) {
        m.msg_control = control.space;
        m.msg_controllen = CMSG_SPACE(n_fds * sizeof(int));
        struct cmsghdr *head = CMSG_FIRSTHDR(&m);
        head->cmsg_level = SOL_SOCKET;
        head->cmsg_type = SCM_RIGHTS;
        head->cmsg_len = CMSG_LEN(n_fds * sizeof(int));
        for (unsigned i = 0; i < n_fds; i++)
            memcpy(CMSG_DATA(head) + i * sizeof(int), &carried, sizeof carried);
    }
    (void)!sendmsg(to, &m, MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* Returns how many were sent. */
static unsigned send_packets(int to, int carried, const uint8_t *data, size_t size)
{
    unsigned n = 0;
    for (; size >= 2 && n < MOST_PACKETS; n++) {
        struct lease_message m = {.magic = LEASE_MAGIC, .kind = KIND, .value = {4096, 1}};
        size_t bytes = data[0];
        unsigned n_fds = data[1];
        data += 2;
        size -= 2;
        bool whole = bytes == 255;
        bytes = whole ? sizeof m : bytes;
        size_t taken = bytes < size ? bytes : size;
        if (whole) { /* the input is exclusive-or'ed to a good message */
            for (size_t i = 0; i < taken; i++)
                ((uint8_t *)&m)[i] ^= data[i];
            send_packet(to, carried, &m, sizeof m, n_fds);
        } else {
            send_packet(to, carried, data, taken, n_fds);
        }
        data += taken;
        size -= taken;
    }
    return n;
}

static void receive_plain(int from)
{
    struct lease_message m;
    int fds[LEASE_MAX_FDS];
    unsigned n_fds = 0;
    struct error e = {0};
    enum error_code code = lease_receive(from, &m, fds, LEASE_MAX_FDS, &n_fds, 0, &e);
    require(!code || e.text[0]);
    if (code)
        return;
    require(m.magic == LEASE_MAGIC && n_fds <= LEASE_MAX_FDS);
    for (unsigned i = 0; i < n_fds; i++)
        close(fds[i]);
}

static void receive_offer(int from)
{
    struct error e = {0};
    struct shm region = {.fd = -1};
    uint64_t bytes;
    int fd;
    if (lease_offer_receive(from, KIND, 1, 0, &fd, &bytes, &e))
        return;
    if (!shm_map(fd, true, bytes, &region, &e)) {
        require(region.bytes >= bytes);
        shm_close(&region);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static int sealed = -1, before;
    int pair[2];
    if (sealed < 0) {
        struct shm s;
        require(!shm_create("fuzz", 4096, &s, NULL));
        sealed = s.fd;
        before = free_fd();
    }
    if (size == 0)
        return 0;
    require(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0);
    unsigned n = send_packets(pair[0], data[0] & 2 ? sealed : pair[0], data + 1, size - 1);
    shutdown(pair[0], SHUT_WR);
    for (unsigned i = 0; i <= n; i++) {
        if (data[0] & 1)
            receive_offer(pair[1]);
        else
            receive_plain(pair[1]);
    }
    close(pair[0]);
    close(pair[1]);
    require(free_fd() == before);
    return 0;
}
