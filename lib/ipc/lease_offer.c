/* Offering a region; see lease_offer.h. */
#include "ipc/lease_offer.h"

#include <unistd.h>

enum error_code lease_offer_send(int fd, uint32_t kind, const struct shm *region,
                                 uint64_t generation, struct error *e)
{
    const struct lease_message m = {.kind = kind, .value = {region->bytes, generation}};
    return lease_send(fd, &m, &region->fd, 1, e);
}

enum error_code lease_offer_answered(int fd, uint32_t kind, int timeout_ms, struct error *e)
{
    struct lease_message m;
    enum error_code code = lease_receive(fd, &m, NULL, 0, NULL, timeout_ms, e);
    if (!code && m.kind != kind + LEASE_OFFER_ACCEPTED)
        code = error_set(e, ERROR_PROTOCOL, "the offer was refused (%s)",
                         error_meaning((enum error_code)m.value[0]));
    return code;
}

static enum error_code check(const struct lease_message *m, unsigned n_fds, uint32_t kind,
                             uint64_t generation, struct error *e)
{
    if (m->kind != kind || n_fds != 1)
        return error_set(e, ERROR_PROTOCOL, "expected an offer with one descriptor");
    if (m->value[1] != generation)
        return error_set(e, ERROR_VERSION, "the worker holds another load of the model");
    return ERROR_OK;
}

enum error_code lease_offer_receive(int fd, uint32_t kind, uint64_t generation, int timeout_ms,
                                    int *region, uint64_t *bytes, struct error *e)
{
    struct lease_message m;
    int fds[LEASE_MAX_FDS];
    unsigned n_fds = 0;
    enum error_code code = lease_receive(fd, &m, fds, LEASE_MAX_FDS, &n_fds, timeout_ms, e);
    if (code)
        return code;
    code = check(&m, n_fds, kind, generation, e);
    if (code) {
        for (unsigned i = 0; i < n_fds; i++)
            close(fds[i]);
        lease_offer_answer(fd, kind, code, NULL);
        return code;
    }
    *region = fds[0];
    *bytes = m.value[0];
    return ERROR_OK;
}

enum error_code lease_offer_answer(int fd, uint32_t kind, enum error_code answer, struct error *e)
{
    const struct lease_message m = {
        .kind = kind + (answer ? LEASE_OFFER_REFUSED : LEASE_OFFER_ACCEPTED), .value = {answer}};
    return lease_send(fd, &m, NULL, 0, e);
}
