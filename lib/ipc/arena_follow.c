/* Following the arena; see arena_follow.h. */
#include "ipc/arena_follow.h"

static void drop(struct arena_follower *f, uint32_t extent)
{
    if (f->serials[extent])
        f->close(f->arg, extent);
    f->serials[extent] = 0;
}

/* An entry may be newer than `changes`. That does no harm: memd rewrites an entry only after every
 * worker has reported that it closed the predecessor. */
static enum error_code follow_extent(struct arena_follower *f, uint32_t i, struct error *e)
{
    const struct residency_extent *p = &f->header->extents[i];
    uint32_t serial = atomic_load_explicit(&p->serial, memory_order_acquire);
    if (serial == f->serials[i])
        return ERROR_OK;
    drop(f, i);
    enum error_code code = serial ? f->import(f->arg, i, p, e) : ERROR_OK;
    if (!code)
        f->serials[i] = serial;
    return code;
}

enum error_code arena_follow(struct arena_follower *f, struct error *e)
{
    uint64_t changes = atomic_load_explicit(&f->header->changes, memory_order_acquire); /* F1 */
    enum error_code code = ERROR_OK;
    struct error why;
    for (uint32_t i = 1; i < ARENA_EXTENTS; i++) {
        enum error_code failed = follow_extent(f, i, code ? &why : e);
        code = code ? code : failed;
    }
    f->followed = true;
    f->seen = changes;
    atomic_store_explicit(code ? &f->channel->arena_refused : &f->channel->arena_seen, changes,
                          memory_order_release); /* F3 */
    return code;
}

void arena_forget(struct arena_follower *f)
{
    for (uint32_t i = 1; i < ARENA_EXTENTS; i++)
        drop(f, i);
}
