/* The single-producer, single-consumer ring.
 *
 * Invariants:
 * 1. tail - head (modulo 2^32) is the number of records, 0 to capacity.
 * 2. Only the producer writes tail, only the consumer head. Each keeps its own index in its private
 * struct ring and publishes it. It never uses the header's copy of its own index, only compares it:
 * a difference means that another process writes it (a second attachment of the same end, or a peer
 * that misbehaves).
 * 3. A record is written before the release store of tail that publishes it, and read after the
 * acquire load that saw it; its slot is reused only after the acquire load of head that pairs with
 * the consumer's release store, which follows its copy.
 * 4. capacity is the copy that ring_attach checked, never the header's. capacity 0: broken.
 */
#include "ipc/ring.h"

#include <string.h>

#define RING_MAGIC        0x4d4f5231u /* "MOR1" */
#define RING_MAX_CAPACITY (1u << 20)

_Static_assert(offsetof(struct ring_header, magic) == 0, "shared layout");
_Static_assert(offsetof(struct ring_header, version) == 4, "shared layout");
_Static_assert(offsetof(struct ring_header, capacity) == 8, "shared layout");
_Static_assert(offsetof(struct ring_header, tail) == 64, "shared layout");
_Static_assert(offsetof(struct ring_header, head) == 128, "shared layout");
_Static_assert(offsetof(struct ring_header, doorbell) == 192, "shared layout");
_Static_assert(sizeof(struct ring_header) == 256, "shared layout");

static bool capacity_valid(uint32_t capacity)
{
    return capacity > 0 && capacity <= RING_MAX_CAPACITY && (capacity & (capacity - 1)) == 0;
}

size_t ring_bytes(uint32_t capacity)
{
    return sizeof(struct ring_header) + (size_t)capacity * RING_RECORD_BYTES;
}

void ring_init(void *memory, uint32_t capacity)
{
    struct ring_header *h = memory;
    memset(h, 0, sizeof *h);
    h->magic = RING_MAGIC;
    h->version = RING_LAYOUT_VERSION;
    h->capacity = capacity;
}

enum error_code ring_attach(struct ring *r, void *memory, size_t bytes, struct error *e)
{
    if (((uintptr_t)memory & 63) != 0)
        return error_set(e, ERROR_USAGE, "ring at an address that is not 64-byte aligned");
    if (bytes < sizeof(struct ring_header))
        return error_set(e, ERROR_PROTOCOL, "ring of %zu bytes: its header has %zu", bytes,
                         sizeof(struct ring_header));
    struct ring_header *h = memory;
    /* Volatile: read once, because the peer may change it between check and use. */
    uint32_t magic = *(volatile uint32_t *)&h->magic;
    uint32_t version = *(volatile uint32_t *)&h->version;
    uint32_t capacity = *(volatile uint32_t *)&h->capacity;
    if (magic != RING_MAGIC)
        return error_set(e, ERROR_PROTOCOL, "ring: magic is 0x%08x, expected 0x%08x", magic,
                         RING_MAGIC);
    if (version != RING_LAYOUT_VERSION)
        return error_set(e, ERROR_VERSION,
                         "ring: layout version %u, this build has %u: restart "
                         "the processes of the deployment with one build",
                         version, RING_LAYOUT_VERSION);
    if (!capacity_valid(capacity) || ring_bytes(capacity) > bytes)
        return error_set(e, ERROR_PROTOCOL, "ring: capacity %u does not fit in %zu bytes", capacity,
                         bytes);
    /* Both indices start at 0: each end is attached once in a ring's life (a process that restarts
     * gets a new ring). The other end may already be working. */
    *r = (struct ring){.header = h,
                       .records = (uint8_t *)memory + sizeof(struct ring_header),
                       .capacity = capacity};
    return ERROR_OK;
}

static int broken(struct ring *r)
{
    r->capacity = 0;
    return -1;
}

static uint8_t *record_at(struct ring *r, uint32_t index)
{
    return r->records + (size_t)(index & (r->capacity - 1)) * RING_RECORD_BYTES;
}

int ring_push(struct ring *r, const void *record)
{
    struct ring_header *h = r->header;
    if (r->capacity == 0 ||
        atomic_load_explicit(&h->tail, memory_order_relaxed) != r->own) /* invariant 2 */
        return broken(r);
    if (r->own - r->peer == r->capacity) {
        /* pairs with the release store in ring_pop */
        uint32_t head = atomic_load_explicit(&h->head, memory_order_acquire);
        if (r->own - head > r->capacity)
            return broken(r);
        r->peer = head;
        if (r->own - head == r->capacity)
            return 0;
    }
    memcpy(record_at(r, r->own), record, RING_RECORD_BYTES);
    r->own++;
    /* pairs with the acquire loads in ring_pop and has_record */
    atomic_store_explicit(&h->tail, r->own, memory_order_release);
    return 1;
}

int ring_pop(struct ring *r, void *record)
{
    struct ring_header *h = r->header;
    if (r->capacity == 0 ||
        atomic_load_explicit(&h->head, memory_order_relaxed) != r->own) /* invariant 2 */
        return broken(r);
    if (r->own == r->peer) {
        /* pairs with the release store in ring_push */
        uint32_t tail = atomic_load_explicit(&h->tail, memory_order_acquire);
        if (tail - r->own > r->capacity)
            return broken(r);
        if (tail == r->own)
            return 0;
        r->peer = tail;
    }
    memcpy(record, record_at(r, r->own), RING_RECORD_BYTES);
    r->own++;
    /* pairs with the acquire load in ring_push */
    atomic_store_explicit(&h->head, r->own, memory_order_release);
    return 1;
}

void ring_notify(struct ring *r)
{
    doorbell_ring(&r->header->doorbell);
}

struct wait_context {
    const struct ring *ring;
    const _Atomic bool *stop;
};

/* True also for a broken ring and for invalid indices: the ring_pop that follows reports them. */
static bool has_record(const struct ring *r)
{
    return r->capacity == 0 || r->own != r->peer ||
           atomic_load_explicit(&r->header->tail, memory_order_acquire) != r->own;
}

static bool ready(void *arg)
{
    const struct wait_context *w = arg;
    return has_record(w->ring) ||
           (w->stop != NULL && atomic_load_explicit(w->stop, memory_order_acquire));
}

bool ring_wait(struct ring *r, const _Atomic bool *stop, struct spinner *spinner, int timeout_ms)
{
    struct wait_context w = {.ring = r, .stop = stop};
    doorbell_wait(&r->header->doorbell, ready, &w, spinner, timeout_ms);
    return has_record(r);
}
