/* Conversations in a file; see kv_file.h.
 *
 * A slot's way: its old record is overwritten, then the page is written, then the new record. */
#include "memd/host/kv_file.h"

#include "base/checksum.h"
#include "base/clock.h"
#include "base/log.h"
#include "gguf/gguf.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define FILE_MAGIC 0x31564b4445454f4dull
#define NONE       UINT32_MAX
#define FUTURE_S   3600 /* is_in_future */

#define FIRST_PAUSE_S 60 /* fail */
#define LAST_PAUSE_S  3600

struct file_header {
    uint64_t magic, version, page_bytes, seed;
    uint64_t checksum; /* of the fields before it */
};

struct file_record {
    struct kv_store_page page;
    uint64_t checksum;
};
_Static_assert(sizeof(struct file_record) <= KV_STORE_BLOCK, "a block holds a record");

/* ---- Reading and writing ---- */

static bool write_all(int fd, const void *data, size_t bytes, uint64_t at)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t n = pwrite(fd, (const uint8_t *)data + done, bytes - done, (off_t)(at + done));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        done += (size_t)n;
    }
    return true;
}

static bool read_all(int fd, void *data, size_t bytes, uint64_t at)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t n = pread(fd, (uint8_t *)data + done, bytes - done, (off_t)(at + done));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        done += (size_t)n;
    }
    return true;
}

static uint64_t record_checksum(const struct kv_file *f, const struct kv_store_page *page,
                                uint32_t slot)
{
    return checksum64(f->index.seed + slot, page, sizeof *page);
}

/* The disk is full, for instance. Each attempt that fails doubles the time until the next one. */
static void fail(struct kv_file *f)
{
    if (!f->failed) {
        log_warn("conversations are no longer saved: writing the file failed: %m");
        f->pause_s = FIRST_PAUSE_S;
    } else {
        f->pause_s = f->pause_s * 2 < LAST_PAUSE_S ? f->pause_s * 2 : LAST_PAUSE_S;
    }
    f->retry_ns = clock_ns() + f->pause_s * 1000000000ull;
    f->failed = true;
}

static void succeed(struct kv_file *f)
{
    if (f->failed)
        log_info("conversations are saved again");
    f->failed = false;
}

bool kv_file_writes(const struct kv_file *f)
{
    return !f->failed || clock_ns() >= f->retry_ns;
}

void kv_file_retry(struct kv_file *f)
{
    f->retry_ns = 0;
}

/* page NULL: the slot is free. */
static bool write_record(struct kv_file *f, uint32_t slot, const struct kv_store_page *page)
{
    struct file_record r = {0};
    if (page) {
        r.page = *page;
        r.checksum = record_checksum(f, page, slot);
    }
    if (write_all(f->fd, &r, sizeof r, kv_store_offset(&f->index, slot)))
        return true;
    fail(f);
    return false;
}

/* ---- Slots ---- */

static uint64_t wall_clock_s(void)
{
    return (uint64_t)time(NULL);
}

static bool is_used(const struct kv_file *f, uint32_t slot)
{
    return atomic_load_explicit(&f->index.parents[slot], memory_order_relaxed) != 0;
}

uint32_t kv_file_find(const struct kv_file *f, uint64_t parent_key, uint64_t key)
{
    struct kv_store_page page;
    for (uint32_t slot = 0; kv_store_next(&f->index, parent_key, &slot, &page); slot++)
        if (page.key == key)
            return slot;
    return NONE;
}

static void drop(struct kv_file *f, uint32_t slot)
{
    kv_store_set(&f->index, slot, NULL);
    f->n_used--;
}

/* Whether a time cannot be right: the wall clock was ahead once, or is behind now. A clock that was
 * set back by less is no reason to drop what was used last. */
static bool is_in_future(uint64_t used_s, uint64_t now_s)
{
    return used_s > now_s + FUTURE_S;
}

/* Whether a goes before b: its time cannot be right; used longer ago; of one time, the later page
 * of a conversation. */
static bool goes_before(const struct kv_store_page *a, const struct kv_store_page *b,
                        uint64_t now_s)
{
    bool a_wrong = is_in_future(a->used_s, now_s);
    if (a_wrong != is_in_future(b->used_s, now_s))
        return a_wrong;
    return a->used_s != b->used_s ? a->used_s < b->used_s : a->depth > b->depth;
}

/* ---- Keys that pages continue ---- */

static uint32_t place_of(const struct kv_file *f, uint64_t key)
{
    uint32_t at = (uint32_t)key & f->continued_mask; /* keys are hashes */
    while (f->continued[at] != 0 && f->continued[at] != key)
        at = (at + 1) & f->continued_mask;
    return at;
}

/* Collects the keys that the pages of the file, and this one, continue. */
static void collect_continued(struct kv_file *f, const struct kv_store_page *page)
{
    memset(f->continued, 0, (f->continued_mask + (size_t)1) * sizeof *f->continued);
    f->continued[place_of(f, page->parent_key)] = page->parent_key;
    for (uint32_t slot = 0; slot < f->index.n_slots; slot++) {
        uint64_t key = atomic_load_explicit(&f->index.parents[slot], memory_order_relaxed);
        if (key)
            f->continued[place_of(f, key)] = key;
    }
}

static bool is_continued(const struct kv_file *f, uint64_t key)
{
    return f->continued[place_of(f, key)] != 0;
}

/* At least twice as many places as keys. */
static bool make_continued(struct kv_file *f)
{
    uint32_t n = 2;
    while (n < 2 * (f->index.n_slots + 1))
        n *= 2;
    f->continued_mask = n - 1;
    f->continued = malloc(n * sizeof *f->continued);
    return f->continued != NULL;
}

/* ---- Writing pages ---- */

static uint32_t find_free(const struct kv_file *f)
{
    uint32_t slot = 0;
    while (slot < f->index.n_slots && is_used(f, slot))
        slot++;
    return slot < f->index.n_slots ? slot : NONE;
}

/* Of the pages that no other one continues, the one that goes first. NONE: there is none. */
static uint32_t find_first_to_go(struct kv_file *f, const struct kv_store_page *page,
                                 uint64_t now_s)
{
    const struct kv_store_record *records = f->index.records;
    uint32_t first = NONE;
    collect_continued(f, page);
    for (uint32_t slot = 0; slot < f->index.n_slots; slot++)
        if (!is_continued(f, records[slot].page.key) &&
            (first == NONE || goes_before(&records[slot].page, &records[first].page, now_s)))
            first = slot;
    return first;
}

/* A free slot, or that of the page that goes first. NONE: that would be the new page. */
static uint32_t take_slot(struct kv_file *f, const struct kv_store_page *page, uint64_t now_s)
{
    uint32_t slot = find_free(f);
    if (slot != NONE)
        return slot;
    slot = find_first_to_go(f, page, now_s);
    if (slot == NONE || goes_before(page, &f->index.records[slot].page, now_s))
        return NONE;
    drop(f, slot);
    return slot;
}

void kv_file_put(struct kv_file *f, struct kv_store_page *page, const void *memory,
                 bool (*still_valid)(void *arg), void *arg)
{
    uint64_t now_s = wall_clock_s();
    if (is_in_future(page->used_s, now_s)) /* by a clock that was set back since */
        page->used_s = now_s;
    uint32_t slot = kv_file_writes(f) ? take_slot(f, page, now_s) : NONE;
    if (slot == NONE)
        return;
    uint64_t at = kv_store_offset(&f->index, slot) + KV_STORE_BLOCK;
    if (!write_record(f, slot, NULL))
        return;
    memcpy(f->copy, memory, f->index.page_bytes); /* a worker may extend the page meanwhile */
    page->checksum = checksum64(f->index.seed, f->copy, f->index.page_bytes);
    if (!write_all(f->fd, f->copy, f->index.page_bytes, at)) {
        fail(f);
        return;
    }
    succeed(f); /* a record alone may need no further place on the disk */
    if ((still_valid && !still_valid(arg)) || !write_record(f, slot, page))
        return;
    kv_store_set(&f->index, slot, page);
    f->n_used++;
    f->written++;
}

void kv_file_touch(struct kv_file *f, uint32_t slot, uint64_t used_s)
{
    struct kv_store_page page = f->index.records[slot].page;
    bool is_later = used_s > page.used_s || is_in_future(page.used_s, wall_clock_s());
    if (!is_used(f, slot) || !is_later)
        return;
    page.used_s = used_s;
    if (kv_file_writes(f) && write_record(f, slot, &page))
        kv_store_set(&f->index, slot, &page);
}

void kv_file_clear(struct kv_file *f)
{
    for (uint32_t slot = 0; slot < f->index.n_slots; slot++)
        if (is_used(f, slot))
            drop(f, slot);
    if (ftruncate(f->fd, KV_STORE_BLOCK) != 0)
        fail(f);
    else
        kv_file_retry(f); /* the disk has its place again */
}

/* ---- Opening ---- */

static uint64_t header_checksum(const struct file_header *h)
{
    return checksum64(0, h, offsetof(struct file_header, checksum));
}

/* Reads the records of the slots that the file has. */
static void read_records(struct kv_file *f)
{
    uint32_t damaged = 0, in_future = 0;
    uint64_t now_s = wall_clock_s();
    struct file_record r;
    for (uint32_t slot = 0; slot < f->index.n_slots; slot++) {
        errno = 0; /* stays so at the end of the file */
        if (!read_all(f->fd, &r, sizeof r, kv_store_offset(&f->index, slot))) {
            if (errno == 0)
                break;
            damaged++;
            continue;
        }
        if (r.page.key == 0)
            continue;
        if (r.checksum != record_checksum(f, &r.page, slot) || r.page.parent_key == 0 ||
            r.page.n == 0 || r.page.n > KV_POOL_TOKENS) {
            damaged++;
            continue;
        }
        kv_store_set(&f->index, slot, &r.page);
        f->n_used++;
        in_future += is_in_future(r.page.used_s, now_s);
    }
    if (damaged)
        log_warn("%" PRIu32 " damaged pages of the conversations' file are not used", damaged);
    if (in_future)
        log_warn("%" PRIu32 " pages of the conversations' file were used in the future, by this "
                 "machine's clock: new pages take their place first",
                 in_future);
}

static enum error_code make_index(struct kv_file *f, const struct kv_file_options *o, uint64_t seed,
                                  struct error *e)
{
    uint64_t slots = (o->most_bytes - KV_STORE_BLOCK) / (o->page_bytes + KV_STORE_BLOCK);
    uint32_t n = slots < KV_STORE_MAX_SLOTS ? (uint32_t)slots : KV_STORE_MAX_SLOTS;
    enum error_code code = shm_create("moed-kv-index", kv_store_bytes(n), &f->region, e);
    if (code)
        return code;
    kv_store_init(f->region.base, n, o->page_bytes, seed);
    code = kv_store_attach(&f->index, f->region.base, f->region.bytes, f->read_fd, e);
    if (!code && !make_continued(f))
        code = error_set(e, ERROR_MEMORY, "no memory for the keys of %" PRIu32 " KV pages", n);
    return code;
}

static enum error_code make_header(struct kv_file *f, const struct kv_file_options *o,
                                   struct file_header *h, struct error *e)
{
    *h = (struct file_header){
        .magic = FILE_MAGIC, .version = o->version, .page_bytes = o->page_bytes};
    if (getrandom(&h->seed, sizeof h->seed, 0) != sizeof h->seed)
        return error_set(e, ERROR_IO, "no random bytes: %m");
    h->checksum = header_checksum(h);
    if (ftruncate(f->fd, 0) != 0 || ftruncate(f->fd, KV_STORE_BLOCK) != 0 ||
        !write_all(f->fd, h, sizeof *h, 0))
        return error_set(e, ERROR_IO, "cannot write the conversations' file: %m");
    return ERROR_OK;
}

/* Opens and locks the file. */
static enum error_code open_locked(struct kv_file *f, const char *path, struct error *e)
{
    f->fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (f->fd < 0)
        return error_set(e, ERROR_IO, "cannot open %.300s: %m", path);
    if (flock(f->fd, LOCK_EX | LOCK_NB) != 0)
        return error_set(e, ERROR_EXISTS, "%.300s: another deployment uses it", path);
    return ERROR_OK;
}

enum content { CONTENT_OURS, CONTENT_OLD, CONTENT_NONE, CONTENT_FOREIGN };

static enum content look_at(const struct kv_file *f, const struct kv_file_options *o,
                            struct file_header *h)
{
    struct stat s;
    if (fstat(f->fd, &s) != 0 || s.st_size == 0)
        return CONTENT_NONE;
    if (!read_all(f->fd, h, sizeof *h, 0) || h->magic != FILE_MAGIC ||
        h->checksum != header_checksum(h))
        return CONTENT_FOREIGN;
    return h->version == o->version && h->page_bytes == o->page_bytes ? CONTENT_OURS : CONTENT_OLD;
}

/* Renames what is at path, and opens a new file. */
static enum error_code set_aside(struct kv_file *f, const char *path, struct error *e)
{
    char aside[PATH_MAX + 8];
    snprintf(aside, sizeof aside, "%s.bad", path);
    log_warn("%s is damaged or no file of conversations: it is not used, and is now %s", path,
             aside);
    close(f->fd);
    f->fd = -1;
    if (rename(path, aside) != 0)
        return error_set(e, ERROR_IO, "cannot rename %.300s: %m", path);
    return open_locked(f, path, e);
}

static enum error_code open_at(struct kv_file *f, const struct kv_file_options *o, const char *path,
                               struct error *e)
{
    struct file_header h;
    enum error_code code = open_locked(f, path, e);
    if (code)
        return code;
    enum content content = look_at(f, o, &h);
    if (content == CONTENT_OLD)
        log_warn("%s is of another version of moed, or of other options: its conversations are "
                 "dropped",
                 path);
    if (content == CONTENT_FOREIGN)
        code = set_aside(f, path, e);
    if (!code && content != CONTENT_OURS)
        code = make_header(f, o, &h, e);
    if (code)
        return code;
    f->read_fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (f->read_fd < 0)
        return error_set(e, ERROR_IO, "cannot open %.300s: %m", path);
    code = make_index(f, o, h.seed, e);
    if (!code)
        read_records(f);
    struct stat s;
    off_t most = (off_t)kv_store_offset(&f->index, code ? 0 : f->index.n_slots);
    if (!code && fstat(f->fd, &s) == 0 && s.st_size > most && ftruncate(f->fd, most) != 0)
        log_warn("%s stays larger than --kv-dir-size: %m", path);
    return code;
}

/* False: the path is too long. */
static bool path_of(const char *dir, uint64_t model, char out[PATH_MAX])
{
    int n = snprintf(out, PATH_MAX, "%s/%016" PRIx64 ".kv", dir, model);
    return n > 0 && n < PATH_MAX;
}

uint64_t kv_file_disk_bytes(const char *dir, uint64_t model)
{
    char path[PATH_MAX];
    struct stat s;
    return path_of(dir, model, path) && stat(path, &s) == 0 ? (uint64_t)s.st_blocks * 512 : 0;
}

enum error_code kv_file_open(struct kv_file *f, const struct kv_file_options *o, struct error *e)
{
    char path[PATH_MAX];
    *f = (struct kv_file){.is_open = true, .fd = -1, .read_fd = -1, .region.fd = -1};
    if (o->most_bytes < 2 * KV_STORE_BLOCK + o->page_bytes)
        return error_set(e, ERROR_USAGE,
                         "--kv-dir-size: a file of %.1f MB holds no page, which takes %.1f MB",
                         (double)o->most_bytes * 1e-6, (double)o->page_bytes * 1e-6);
    if (!path_of(o->dir, o->model, path))
        return error_set(e, ERROR_USAGE, "--kv-dir: the path is too long");
    f->copy = malloc(o->page_bytes);
    enum error_code code =
        f->copy ? open_at(f, o, path, e)
                : error_set(e, ERROR_MEMORY, "no memory for a page of %" PRIu64 " bytes",
                            o->page_bytes);
    if (code) {
        kv_file_close(f);
        return code;
    }
    log_info("%s: %" PRIu32 " pages of earlier conversations; it holds up to %" PRIu32, path,
             atomic_load(&f->n_used), f->index.n_slots);
    return ERROR_OK;
}

void kv_file_close(struct kv_file *f)
{
    if (!f->is_open)
        return;
    shm_close(&f->region);
    if (f->read_fd >= 0)
        close(f->read_fd);
    if (f->fd >= 0)
        close(f->fd);
    free(f->copy);
    free(f->continued);
    *f = (struct kv_file){.fd = -1, .read_fd = -1, .region.fd = -1};
}

/* ---- The model ---- */

/* Mixes in a file's length, when it was written, and bytes from all parts of it. */
static bool mix_file(int fd, uint8_t *part, size_t part_bytes, uint64_t *h)
{
    enum { PARTS = 256 };
    struct stat s;
    if (fstat(fd, &s) != 0)
        return false;
    uint64_t bytes = (uint64_t)s.st_size;
    const uint64_t facts[] = {bytes, (uint64_t)s.st_mtim.tv_sec, (uint64_t)s.st_mtim.tv_nsec};
    *h = checksum64(*h, facts, sizeof facts);
    for (uint64_t i = 0; i < PARTS; i++) {
        uint64_t at = bytes / PARTS * i, n = bytes - at < part_bytes ? bytes - at : part_bytes;
        if (!read_all(fd, part, n, at))
            return false;
        *h = checksum64(*h, part, n);
    }
    return true;
}

enum error_code kv_file_model(const struct gguf *g, uint64_t *out, struct error *e)
{
    enum { PART_BYTES = 16384 };
    uint8_t *part = malloc(PART_BYTES);
    uint64_t h = 1;
    bool good = part != NULL;
    for (uint32_t i = 0; good && i < gguf_file_count(g); i++)
        good = mix_file(gguf_fd(g, i), part, PART_BYTES, &h);
    free(part);
    if (!good)
        return error_set(e, ERROR_IO, "cannot read %.300s: %m", gguf_path(g, 0));
    *out = h;
    return ERROR_OK;
}
