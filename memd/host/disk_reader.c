/* Reading experts; see disk_reader.h.
 *
 * A chunk is one matrix or bias of an expert in the file, widened to whole pages: direct reads need
 * aligned offsets, lengths and buffers. The file may be cut, or the disk fail, at any time: a chunk
 * that ends too early or comes with an error fails its expert. The reader logs one failure in ten
 * seconds at most; `moed_memd_disk_reads_failed_total` counts all.
 *
 *     idle --submit--> busy --the lane's thread--> done --take--> idle
 */
#include "disk_reader.h"

#include "memd/load/pack.h"

#include "base/checked.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/machine_memory.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <liburing.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PAGE              4096u
#define SUBMIT_AGAIN_US   1000
#define COMPLAIN_AGAIN_NS 10000000000u

struct disk_file {
    int direct_fd;       /* -1: none */
    _Atomic bool direct; /* direct_fd is used */
};

struct chunk {
    const struct pack_item *item;
    uint64_t start;          /* in the file, a whole page */
    uint64_t length, needed; /* whole pages; the bytes that must come */
    uint64_t done;
    uint8_t *buffer;
    bool direct;
};

enum lane_state { LANE_IDLE, LANE_BUSY, LANE_DONE };

struct lane {
    struct disk_reader *reader;
    pthread_t thread;
    bool started;
    enum lane_state state; /* guarded by the reader's lock, like the next three */
    uint8_t *to;
    uint64_t new_bytes;
    struct disk_result result;
    bool has_ring;
    struct io_uring ring;
    uint8_t *buffer;
    uint64_t sum; /* of the expert's bytes so far */
};

struct disk_reader {
    struct disk_reader_options o;
    struct disk_file *files; /* [gguf_file_count] */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool stop;
    struct lane lanes[DISK_LANES];
    uint64_t *sums;       /* [layer][expert]: of the bytes that were read first; 0: not read yet */
    atomic_bool reported; /* o.changed was called */
    _Atomic uint64_t complained_ns; /* when a failure was logged last; 0: never */
};

static uint64_t item_bytes(const struct pack_item *item)
{
    return item->rows * item->row_bytes;
}

static uint64_t widened_bytes(const struct pack_item *item)
{
    return round_up(item->source + item_bytes(item), PAGE) - item->source / PAGE * PAGE;
}

/* The bytes of any expert's chunks, at most. */
static uint64_t buffer_bytes(const struct pool_plan *plan)
{
    uint64_t most = 0;
    for (uint32_t layer = 0; layer < plan->header.n_layers; layer++) {
        struct pack_item items[PACK_EXPERT_ITEMS];
        if (!plan->slabs[layer].n_experts)
            continue;
        uint32_t n = pack_expert_items(plan, layer, 0, 0, items);
        uint64_t bytes = 0;
        for (uint32_t i = 0; i < n; i++)
            bytes += round_up(item_bytes(&items[i]), PAGE) + PAGE; /* wherever its pages begin */
        most = bytes > most ? bytes : most;
    }
    return most;
}

/* -- one chunk -- */

static int chunk_fd(const struct disk_reader *r, struct chunk *p)
{
    const struct disk_file *f = &r->files[p->item->tensor->file];
    p->direct = atomic_load_explicit(&f->direct, memory_order_relaxed);
    return p->direct ? f->direct_fd : gguf_fd(r->o.g, p->item->tensor->file);
}

/* Not too often: a broken disk fails every read. */
static bool may_complain(struct disk_reader *r)
{
    uint64_t now = clock_ns(), last = atomic_load(&r->complained_ns);
    return !(last && now - last < COMPLAIN_AGAIN_NS) &&
           atomic_compare_exchange_strong(&r->complained_ns, &last, now);
}

/* The expert's read has failed: its first error is the result's. */
static void fail(struct lane *l, enum error_code code, const struct error *e)
{
    if (may_complain(l->reader))
        log_error("%s", e->text);
    if (!l->result.code) {
        l->result.code = code;
        l->result.error = *e;
    }
}

static void describe(const struct disk_reader *r, const struct chunk *p, int error_number,
                     struct error *e)
{
    const char *path = gguf_path(r->o.g, p->item->tensor->file);
    uint64_t at = p->start + p->done;
    if (error_number)
        error_set(e, ERROR_IO, "%s: reading tensor '%s' at byte %" PRIu64 ": %s (errno %d)", path,
                  p->item->tensor->name, at, strerror(error_number), error_number);
    else
        error_set(e, ERROR_IO,
                  "%s: ends at byte %" PRIu64
                  " within tensor '%s': the file was cut while it is in use",
                  path, at, p->item->tensor->name);
}

static void fail_read(struct lane *l, const struct chunk *p, int error_number)
{
    struct error e;
    describe(l->reader, p, error_number, &e);
    fail(l, ERROR_IO, &e);
}

enum advance { CHUNK_WHOLE, CHUNK_AGAIN, CHUNK_FAILED };

static uint64_t next_piece(const struct chunk *p)
{
    uint64_t left = p->length - p->done;
    return left < DISK_PIECE_BYTES ? left : DISK_PIECE_BYTES;
}

/* got: what a read of the chunk's rest returned, bytes or a negative errno. */
static enum advance advance(struct lane *l, struct chunk *p, int64_t got)
{
    struct disk_reader *r = l->reader;
    if (got == -EINTR || got == -EAGAIN)
        return CHUNK_AGAIN;
    if (got < 0 && p->direct && (got == -EINVAL || got == -EOPNOTSUPP)) {
        struct disk_file *f = &r->files[p->item->tensor->file];
        if (atomic_exchange(&f->direct, false))
            log_info("%s: direct reads are refused: reading through the page cache",
                     gguf_path(r->o.g, p->item->tensor->file));
        p->done = 0;
        return CHUNK_AGAIN;
    }
    if (got < 0) {
        fail_read(l, p, (int)-got);
        return CHUNK_FAILED;
    }
    p->done += (uint64_t)got;
    atomic_fetch_add_explicit(r->o.pieces, 1, memory_order_relaxed);
    if (p->done >= p->needed)
        return CHUNK_WHOLE;
    /* A direct read ends within a page only at the end of the file. */
    if (got == 0 || (p->direct && p->done % PAGE)) {
        fail_read(l, p, 0);
        return CHUNK_FAILED;
    }
    return CHUNK_AGAIN;
}

/* -- an expert's chunks -- */

static uint32_t make_chunks(struct lane *l, const struct pack_item *items, uint32_t n,
                            struct chunk *chunks)
{
    uint8_t *buffer = l->buffer;
    for (uint32_t i = 0; i < n; i++) {
        uint64_t start = items[i].source / PAGE * PAGE, length = widened_bytes(&items[i]);
        chunks[i] = (struct chunk){.item = &items[i],
                                   .start = start,
                                   .length = length,
                                   .needed = items[i].source + item_bytes(&items[i]) - start,
                                   .buffer = buffer};
        buffer += length;
    }
    return n;
}

/* -- whether the file is what it was -- */

/* Four sums side by side, so that no multiplication waits for the one before it. It is to find a
 * file that was changed, not one that was made to have the same sum. */
static uint64_t checksum(const uint8_t *data, uint64_t bytes, uint64_t seed)
{
    const uint64_t prime = 0x9e3779b97f4a7c15u;
    uint64_t lanes[4] = {seed, seed ^ 1, seed ^ 2, seed ^ 3}, sum = bytes;
    uint64_t done = 0;
    for (; done + sizeof lanes <= bytes; done += sizeof lanes)
        for (int i = 0; i < 4; i++) {
            uint64_t word;
            memcpy(&word, data + done + (uint64_t)i * sizeof word, sizeof word);
            lanes[i] = (lanes[i] ^ word) * prime;
            lanes[i] ^= lanes[i] >> 29;
        }
    for (; done < bytes; done++)
        sum = (sum ^ data[done]) * prime;
    for (int i = 0; i < 4; i++)
        sum = (sum ^ lanes[i]) * prime ^ sum >> 31;
    return sum;
}

static void report_change(struct disk_reader *r, const struct error *e)
{
    if (atomic_exchange(&r->reported, true))
        return;
    log_error("%s", e->text);
    if (r->o.changed)
        r->o.changed(r->o.changed_arg, e);
}

/* After the expert was read, or could not be. Answers from another file would be wrong, so a change
 * is reported; where the kernel does not say, only this read fails. */
static void check_unchanged(struct lane *l, const struct pack_item *items, uint32_t n)
{
    struct disk_reader *r = l->reader;
    struct error e;
    enum error_code code = ERROR_OK;
    bool whole = !l->result.code;
    for (uint32_t i = 0; i < n && !code; i++)
        code = gguf_check_unchanged(r->o.g, items[i].tensor->file, &e);
    if (code == ERROR_IO) {
        fail(l, code, &e);
        return;
    }
    uint64_t *first = &r->sums[(size_t)l->result.layer * r->o.plan->header.params.router.n_experts +
                               l->result.expert];
    if (!code && whole && !*first)
        *first = l->sum;
    else if (!code && whole && *first != l->sum)
        code =
            error_set(&e, ERROR_FORMAT,
                      "%s: expert %" PRIu32 " of layer %" PRIu32
                      " is not what it was when it was first read: the file was changed, or "
                      "the disk returns wrong data; restart the deployment",
                      gguf_path(r->o.g, items[0].tensor->file), l->result.expert, l->result.layer);
    if (!code)
        return;
    report_change(r, &e);
    l->result.code = code;
    l->result.error = e;
}

/* Packs the chunk into its place while others are still being read. */
static bool pack_chunk(struct lane *l, const struct chunk *p)
{
    struct error e, why;
    const uint8_t *rows = p->buffer + (p->item->source - p->start);
    l->sum += checksum(rows, item_bytes(p->item), p->item->source); /* chunks come in any order */
    enum error_code code = pack_item_rows(p->item, 0, p->item->rows, rows, l->to, &e);
    if (!code)
        return true;
    error_set(&why, code, "%s: %s", gguf_path(l->reader->o.g, p->item->tensor->file), e.text);
    fail(l, code, &why);
    return false;
}

static void read_one_by_one(struct lane *l, struct chunk *chunks, uint32_t n)
{
    struct disk_reader *r = l->reader;
    for (uint32_t i = 0; i < n; i++) {
        struct chunk *p = &chunks[i];
        enum advance a;
        do {
            ssize_t got = pread(chunk_fd(r, p), p->buffer + p->done, next_piece(p),
                                (off_t)(p->start + p->done));
            a = advance(l, p, got < 0 ? -errno : got);
        } while (a == CHUNK_AGAIN);
        if (a == CHUNK_FAILED || !pack_chunk(l, p))
            return;
    }
}

static void queue_chunk(struct lane *l, struct chunk *p)
{
    struct io_uring_sqe *sqe = io_uring_get_sqe(&l->ring);
    assert(sqe); /* the ring is large enough for all chunks of an expert */
    io_uring_prep_read(sqe, chunk_fd(l->reader, p), p->buffer + p->done, (unsigned)next_piece(p),
                       p->start + p->done);
    io_uring_sqe_set_data(sqe, p);
}

/* Waits for every submitted read, also after a failure: the buffer is theirs until then. If the
 * kernel takes no submission (it lacks memory for one, say), logs that and tries again: memd goes
 * on, and the worker that waits gives up. */
static void read_all_at_once(struct lane *l, struct chunk *chunks, uint32_t n)
{
    bool ok = true;
    uint32_t waiting = n;
    for (uint32_t i = 0; i < n; i++)
        queue_chunk(l, &chunks[i]);
    while (waiting) {
        struct io_uring_cqe *cqe;
        int submitted = io_uring_submit_and_wait(&l->ring, 1);
        if (submitted < 0 && submitted != -EINTR) {
            struct error e;
            describe(l->reader, &chunks[0], -submitted, &e);
            if (may_complain(l->reader))
                log_error("%s", e.text);
            usleep(SUBMIT_AGAIN_US);
        }
        while (waiting && io_uring_peek_cqe(&l->ring, &cqe) == 0) {
            struct chunk *p = io_uring_cqe_get_data(cqe);
            int64_t got = cqe->res;
            io_uring_cqe_seen(&l->ring, cqe);
            enum advance a = advance(l, p, got);
            if (a == CHUNK_AGAIN && ok) {
                queue_chunk(l, p);
                continue;
            }
            waiting--;
            ok = ok && a == CHUNK_WHOLE && pack_chunk(l, p);
        }
    }
}

static void read_expert(struct lane *l)
{
    const struct disk_reader *r = l->reader;
    struct disk_result *result = &l->result;
    struct pack_item items[PACK_EXPERT_ITEMS];
    struct chunk chunks[PACK_EXPERT_ITEMS];
    uint32_t n = pack_expert_items(r->o.plan, result->layer, result->expert, 0, items);
    uint64_t started = clock_ns();
    struct error e;
    if (l->new_bytes && memory_populate(l->to, l->new_bytes, &e)) {
        fail(l, ERROR_MEMORY, &e);
        return;
    }
    make_chunks(l, items, n, chunks);
    l->sum = 1; /* and so hardly ever 0 */
    if (l->has_ring)
        read_all_at_once(l, chunks, n);
    else
        read_one_by_one(l, chunks, n);
    result->read_ns = clock_ns() - started;
    for (uint32_t i = 0; i < n; i++)
        result->bytes += chunks[i].done;
    check_unchanged(l, items, n);
}

static void *lane_main(void *arg)
{
    struct lane *l = arg;
    struct disk_reader *r = l->reader;
    pthread_setname_np(pthread_self(), "memd/read");
    pthread_mutex_lock(&r->lock);
    for (;;) {
        while (!r->stop && l->state != LANE_BUSY)
            pthread_cond_wait(&r->changed, &r->lock);
        if (r->stop)
            break;
        pthread_mutex_unlock(&r->lock);
        read_expert(l);
        pthread_mutex_lock(&r->lock);
        l->state = LANE_DONE;
        doorbell_ring(r->o.bell);
    }
    pthread_mutex_unlock(&r->lock);
    return NULL;
}

/* -- the interface -- */

/* Opens the same file again through /proc, for its path may name another by now. */
static void open_direct(struct disk_reader *r, uint32_t file)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", gguf_fd(r->o.g, file));
    struct disk_file *f = &r->files[file];
    f->direct_fd = open(path, O_RDONLY | O_DIRECT | O_CLOEXEC);
    atomic_init(&f->direct, f->direct_fd >= 0);
    if (f->direct_fd < 0)
        log_info("%s: no direct reads (%m): reading through the page cache",
                 gguf_path(r->o.g, file));
}

static enum error_code start_lane(struct disk_reader *r, struct lane *l, uint64_t bytes,
                                  struct error *e)
{
    l->reader = r;
    l->buffer = aligned_alloc(PAGE, round_up(bytes, PAGE));
    if (!l->buffer)
        return error_set(e, ERROR_MEMORY,
                         "no memory for a buffer of %" PRIu64 " bytes to read into", bytes);
    int failed = io_uring_queue_init(2 * PACK_EXPERT_ITEMS, &l->ring, 0);
    l->has_ring = failed == 0;
    if (failed && l == &r->lanes[0])
        log_info("no io_uring (%s): reading with %d threads instead", strerror(-failed),
                 DISK_LANES);
    failed = pthread_create(&l->thread, NULL, lane_main, l);
    if (failed)
        return error_set(e, ERROR_MEMORY, "cannot start the thread memd/read: %s",
                         strerror(failed));
    l->started = true;
    return ERROR_OK;
}

enum error_code disk_reader_new(const struct disk_reader_options *options, struct disk_reader **out,
                                struct error *e)
{
    const struct gguf *g = options->g;
    const struct pool_plan *plan = options->plan;
    struct disk_reader *r = calloc(1, sizeof *r);
    struct disk_file *files = calloc(gguf_file_count(g), sizeof *files);
    uint64_t *sums =
        calloc((size_t)plan->header.n_layers * plan->header.params.router.n_experts, sizeof *sums);
    if (!r || !files || !sums) {
        free(r);
        free(files);
        free(sums);
        return error_set(e, ERROR_MEMORY, "no memory to read experts");
    }
    *r = (struct disk_reader){.o = *options, .files = files, .sums = sums};
    pthread_mutex_init(&r->lock, NULL);
    pthread_cond_init(&r->changed, NULL);
    for (uint32_t i = 0; i < gguf_file_count(g); i++)
        open_direct(r, i);
    enum error_code code = ERROR_OK;
    uint64_t bytes = buffer_bytes(plan);
    for (int i = 0; i < DISK_LANES && !code; i++)
        code = start_lane(r, &r->lanes[i], bytes, e);
    if (code) {
        disk_reader_free(r);
        return code;
    }
    *out = r;
    return ERROR_OK;
}

void disk_reader_free(struct disk_reader *r)
{
    if (!r)
        return;
    pthread_mutex_lock(&r->lock);
    r->stop = true;
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&r->lock);
    for (int i = 0; i < DISK_LANES; i++) {
        struct lane *l = &r->lanes[i];
        if (l->started)
            pthread_join(l->thread, NULL);
        if (l->has_ring)
            io_uring_queue_exit(&l->ring);
        free(l->buffer);
    }
    for (uint32_t i = 0; i < gguf_file_count(r->o.g); i++)
        if (r->files[i].direct_fd >= 0)
            close(r->files[i].direct_fd);
    pthread_mutex_destroy(&r->lock);
    pthread_cond_destroy(&r->changed);
    free(r->files);
    free(r->sums);
    free(r);
}

static struct lane *lane_that_is(struct disk_reader *r, enum lane_state state)
{
    for (int i = 0; i < DISK_LANES; i++)
        if (r->lanes[i].state == state)
            return &r->lanes[i];
    return NULL;
}

uint32_t disk_reader_idle(struct disk_reader *r)
{
    uint32_t n = 0;
    pthread_mutex_lock(&r->lock);
    for (int i = 0; i < DISK_LANES; i++)
        n += r->lanes[i].state == LANE_IDLE;
    pthread_mutex_unlock(&r->lock);
    return n;
}

void disk_reader_submit(struct disk_reader *r, uint32_t layer, uint32_t expert, uint8_t *to,
                        uint64_t new_bytes)
{
    pthread_mutex_lock(&r->lock);
    struct lane *l = lane_that_is(r, LANE_IDLE);
    assert(l);
    l->to = to;
    l->new_bytes = new_bytes;
    l->result = (struct disk_result){.layer = layer, .expert = expert};
    l->state = LANE_BUSY;
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&r->lock);
}

bool disk_reader_take(struct disk_reader *r, struct disk_result *out)
{
    pthread_mutex_lock(&r->lock);
    struct lane *l = lane_that_is(r, LANE_DONE);
    if (l) {
        *out = l->result;
        l->state = LANE_IDLE;
    }
    pthread_mutex_unlock(&r->lock);
    return l != NULL;
}
