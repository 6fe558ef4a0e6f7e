/* Reading experts; see disk_reader.h.
 *
 * A piece is what one matrix or bias of an expert is in the file, widened to whole pages: direct reads want offsets,
 * lengths and buffers aligned. The file may be cut or the disk fail at any time: a piece that ends too early or comes with
 * an error fails its expert. Failures are logged, one in ten seconds at most; `moed_memd_disk_reads_failed_total` counts all.
 *
 *     idle --submit--> busy --the lane's thread--> done --take--> idle
 */
#include "disk_reader.h"

#include "pack.h"

#include "base/checked.h"
#include "base/clock.h"
#include "base/log.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <liburing.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PAGE              4096u
#define SUBMIT_AGAIN_US   1000
#define COMPLAIN_AGAIN_NS 10000000000u

struct disk_file {
    int direct_fd;       /* -1: none */
    _Atomic bool direct; /* it is used */
};

struct piece {
    const struct pack_item *item;
    uint64_t start;          /* in the file, a whole page */
    uint64_t length, needed; /* whole pages; what of them must come */
    uint64_t done;
    uint8_t *buffer;
    bool direct;
};

enum lane_state { LANE_IDLE, LANE_BUSY, LANE_DONE };

struct lane {
    struct disk_reader *reader;
    pthread_t thread;
    bool started;
    enum lane_state state; /* guarded by the reader's lock, like the next two */
    uint8_t *to;
    struct disk_result result;
    bool has_ring;
    struct io_uring ring;
    uint8_t *buffer;
};

struct disk_reader {
    const struct gguf *g;
    const struct pool_plan *plan;
    struct doorbell *bell;
    struct disk_file *files; /* [gguf_file_count] */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool stop;
    struct lane lanes[DISK_LANES];
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

/* The most that any expert's pieces take. */
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

/* -- one piece -- */

static int piece_fd(const struct disk_reader *r, struct piece *p)
{
    const struct disk_file *f = &r->files[p->item->tensor->file];
    p->direct = atomic_load_explicit(&f->direct, memory_order_relaxed);
    return p->direct ? f->direct_fd : gguf_fd(r->g, p->item->tensor->file);
}

static void complain(struct disk_reader *r, const struct piece *p, int error_number)
{
    uint64_t now = clock_ns(), last = atomic_load(&r->complained_ns);
    if ((last && now - last < COMPLAIN_AGAIN_NS) ||
        !atomic_compare_exchange_strong(&r->complained_ns, &last, now))
        return;
    const char *path = gguf_path(r->g, p->item->tensor->file);
    uint64_t at = p->start + p->done;
    if (error_number)
        log_error("%s: reading tensor '%s' at byte %" PRIu64 ": %s (errno %d)", path,
                  p->item->tensor->name, at, strerror(error_number), error_number);
    else
        log_error("%s: ends at byte %" PRIu64
                  " within tensor '%s': the file was cut while it is in "
                  "use",
                  path, at, p->item->tensor->name);
}

enum advance { PIECE_WHOLE, PIECE_AGAIN, PIECE_FAILED };

/* What a read of the piece's rest has brought: bytes, or a negative errno. */
static enum advance advance(struct disk_reader *r, struct piece *p, int64_t got)
{
    if (got == -EINTR || got == -EAGAIN)
        return PIECE_AGAIN;
    if (got < 0 && p->direct && (got == -EINVAL || got == -EOPNOTSUPP)) {
        struct disk_file *f = &r->files[p->item->tensor->file];
        if (atomic_exchange(&f->direct, false))
            log_info("%s: direct reads are refused: reading through the page cache",
                     gguf_path(r->g, p->item->tensor->file));
        p->done = 0;
        return PIECE_AGAIN;
    }
    if (got < 0) {
        complain(r, p, (int)-got);
        return PIECE_FAILED;
    }
    p->done += (uint64_t)got;
    if (p->done >= p->needed)
        return PIECE_WHOLE;
    /* A direct read ends between pages at the end of the file alone. */
    if (got == 0 || (p->direct && p->done % PAGE)) {
        complain(r, p, 0);
        return PIECE_FAILED;
    }
    return PIECE_AGAIN;
}

/* -- an expert's pieces -- */

static uint32_t make_pieces(struct lane *l, const struct pack_item *items, uint32_t n,
                            struct piece *pieces)
{
    uint8_t *buffer = l->buffer;
    for (uint32_t i = 0; i < n; i++) {
        uint64_t start = items[i].source / PAGE * PAGE, length = widened_bytes(&items[i]);
        pieces[i] = (struct piece){.item = &items[i],
                                   .start = start,
                                   .length = length,
                                   .needed = items[i].source + item_bytes(&items[i]) - start,
                                   .buffer = buffer};
        buffer += length;
    }
    return n;
}

/* Where it belongs, while others are still being read. False: no memory, which an expert's pieces do not need. */
static bool pack_piece(const struct lane *l, const struct piece *p)
{
    const uint8_t *rows = p->buffer + (p->item->source - p->start);
    return pack_rows(p->item, 0, p->item->rows, rows, l->to, NULL) == ERROR_OK;
}

static bool read_one_by_one(struct lane *l, struct piece *pieces, uint32_t n)
{
    struct disk_reader *r = l->reader;
    for (uint32_t i = 0; i < n; i++) {
        struct piece *p = &pieces[i];
        enum advance a;
        do {
            ssize_t got = pread(piece_fd(r, p), p->buffer + p->done, p->length - p->done,
                                (off_t)(p->start + p->done));
            a = advance(r, p, got < 0 ? -errno : got);
        } while (a == PIECE_AGAIN);
        if (a == PIECE_FAILED || !pack_piece(l, p))
            return false;
    }
    return true;
}

static void queue_piece(struct lane *l, struct piece *p)
{
    struct io_uring_sqe *sqe = io_uring_get_sqe(&l->ring);
    assert(sqe); /* the ring has room for all pieces of an expert */
    uint64_t left = p->length - p->done;
    io_uring_prep_read(sqe, piece_fd(l->reader, p), p->buffer + p->done,
                       left < 1u << 30 ? (unsigned)left : 1u << 30, p->start + p->done);
    io_uring_sqe_set_data(sqe, p);
}

/* Every read that was submitted is waited for, also after a failure: the buffer is theirs until then. Where the kernel takes no
 * submission (it lacks memory for one, say) that is said, and tried again: memd lives on, and who waits gives up. */
static bool read_all_at_once(struct lane *l, struct piece *pieces, uint32_t n)
{
    bool ok = true;
    uint32_t waiting = n;
    for (uint32_t i = 0; i < n; i++)
        queue_piece(l, &pieces[i]);
    while (waiting) {
        struct io_uring_cqe *cqe;
        int submitted = io_uring_submit_and_wait(&l->ring, 1);
        if (submitted < 0 && submitted != -EINTR) {
            complain(l->reader, &pieces[0], -submitted);
            usleep(SUBMIT_AGAIN_US);
        }
        while (waiting && io_uring_peek_cqe(&l->ring, &cqe) == 0) {
            struct piece *p = io_uring_cqe_get_data(cqe);
            int64_t got = cqe->res;
            io_uring_cqe_seen(&l->ring, cqe);
            enum advance a = advance(l->reader, p, got);
            if (a == PIECE_AGAIN && ok) {
                queue_piece(l, p);
                continue;
            }
            waiting--;
            ok = ok && a == PIECE_WHOLE && pack_piece(l, p);
        }
    }
    return ok;
}

static enum error_code read_expert(struct lane *l)
{
    const struct disk_reader *r = l->reader;
    struct disk_result *result = &l->result;
    struct pack_item items[PACK_EXPERT_ITEMS];
    struct piece pieces[PACK_EXPERT_ITEMS];
    uint32_t n = pack_expert_items(r->plan, result->layer, result->expert, 0, items);
    uint64_t started = clock_ns();
    make_pieces(l, items, n, pieces);
    bool ok = l->has_ring ? read_all_at_once(l, pieces, n) : read_one_by_one(l, pieces, n);
    result->read_ns = clock_ns() - started;
    for (uint32_t i = 0; i < n; i++)
        result->bytes += pieces[i].done;
    return ok ? ERROR_OK : ERROR_IO;
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
        enum error_code code = read_expert(l);
        pthread_mutex_lock(&r->lock);
        l->result.code = code;
        l->state = LANE_DONE;
        doorbell_ring(r->bell);
    }
    pthread_mutex_unlock(&r->lock);
    return NULL;
}

/* -- the interface -- */

/* The file that is open already, whatever stands at its path by now. */
static void open_direct(struct disk_reader *r, uint32_t file)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", gguf_fd(r->g, file));
    struct disk_file *f = &r->files[file];
    f->direct_fd = open(path, O_RDONLY | O_DIRECT | O_CLOEXEC);
    atomic_init(&f->direct, f->direct_fd >= 0);
    if (f->direct_fd < 0)
        log_info("%s: no direct reads (%m): reading through the page cache", gguf_path(r->g, file));
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
        return error_set(e, ERROR_MEMORY, "cannot start a thread that reads: %s", strerror(failed));
    l->started = true;
    return ERROR_OK;
}

enum error_code disk_reader_new(const struct gguf *g, const struct pool_plan *plan,
                                struct doorbell *bell, struct disk_reader **out, struct error *e)
{
    struct disk_reader *r = calloc(1, sizeof *r);
    struct disk_file *files = calloc(gguf_file_count(g), sizeof *files);
    if (!r || !files) {
        free(r);
        free(files);
        return error_set(e, ERROR_MEMORY, "no memory to read experts");
    }
    *r = (struct disk_reader){.g = g, .plan = plan, .bell = bell, .files = files};
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
    for (uint32_t i = 0; i < gguf_file_count(r->g); i++)
        if (r->files[i].direct_fd >= 0)
            close(r->files[i].direct_fd);
    pthread_mutex_destroy(&r->lock);
    pthread_cond_destroy(&r->changed);
    free(r->files);
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

void disk_reader_submit(struct disk_reader *r, uint32_t layer, uint32_t expert, uint8_t *to)
{
    pthread_mutex_lock(&r->lock);
    struct lane *l = lane_that_is(r, LANE_IDLE);
    assert(l);
    l->to = to;
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
