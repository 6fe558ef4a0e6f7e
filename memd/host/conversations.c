/* memd's part of the KV pool; see conversations.h. */
#include "memd/host/conversations.h"

#include "base/checksum.h"
#include "base/log.h"
#include "base/machine_memory.h"
#include "base/quantity.h"
#include "exec/numa.h"
#include "model/kv_arithmetic.h"
#include "model/kv_layout.h"
#include "model/memory_need.h"
#include "model/serving_limits.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

enum {
    DEFAULT_SHARE = 50,  /* percent of the free memory */
    MOST_PAGES = 1 << 16 /* the worker looks through all of them */
};

static uint64_t less(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

/* Free memory that the region may take. */
static uint64_t available_bytes(const struct conversations_options *o)
{
    uint64_t available = memory_available_bytes();
    uint64_t states = memory_state_bytes(o->params, o->parallel); /* the worker's */
    if (available > (uint64_t)1 << 60)                            /* not known */
        available = (uint64_t)1 << 32;
    return less(less(available, states), o->margin);
}

/* The size that is asked for. */
static enum error_code size_in_bytes(const struct conversations_options *o, uint64_t *out,
                                     struct error *e)
{
    const char *text = o->size;
    uint64_t available = available_bytes(o), shared = less(available, o->promised);
    if (!text) {
        *out = shared / 100 * DEFAULT_SHARE;
        return ERROR_OK;
    }
    if (!quantity_parse_size_of(text, strlen(text), shared, out))
        return error_set(e, ERROR_USAGE,
                         "--kv-cache '%.40s': expected " QUANTITY_SIZE
                         " or a share of the free memory, as 25%%",
                         text);
    if (*out <= available)
        return ERROR_OK;
    return error_set(e, ERROR_MEMORY,
                     "--kv-cache %.20s: only %.2f GB of memory are available after the weights and "
                     "%.2f GB for the other processes",
                     text, (double)available * 1e-9, (double)o->margin * 1e-9);
}

/* ---- The file ---- */

/* Bytes that the file may have. */
static enum error_code file_size(const struct conversations *c,
                                 const struct conversations_options *o, uint64_t model,
                                 uint64_t *out, struct error *e)
{
    struct statvfs disk;
    uint64_t free_bytes = 0;
    if (statvfs(o->dir, &disk) == 0)
        free_bytes = (uint64_t)disk.f_bavail * disk.f_frsize + kv_file_disk_bytes(o->dir, model);
    if (o->dir_size && !quantity_parse_size_of(o->dir_size, strlen(o->dir_size), free_bytes, out))
        return error_set(e, ERROR_USAGE,
                         "--kv-dir-size '%.40s': expected " QUANTITY_SIZE
                         " or a share of the free disk space, as 25%%",
                         o->dir_size);
    if (!o->dir_size)
        *out = 2 * c->region.bytes < free_bytes / 2 ? 2 * c->region.bytes : free_bytes / 2;
    return ERROR_OK;
}

/* All that a page depends on beside the model and kv_pool_header.format. */
static uint64_t file_version(const struct conversations_options *o)
{
    static const char release[] = MOED_VERSION;
    const uint32_t parts[] = {KV_POOL_LAYOUT_VERSION, KV_STORE_LAYOUT_VERSION, KV_POOL_TOKENS,
                              (uint32_t)o->type};
    uint64_t seed = checksum64(kv_arithmetic(o->params), release, sizeof release);
    return checksum64(seed, parts, sizeof parts);
}

static enum error_code open_file(struct conversations *c, const struct conversations_options *o,
                                 struct error *e)
{
    struct kv_file_options file = {
        .dir = o->dir, .version = file_version(o), .page_bytes = c->pool.page_bytes};
    if (!o->dir)
        return ERROR_OK;
    if (params_state_bytes(o->params)) {
        log_warn("conversations are not kept in a file: the model has recurrent layers, whose "
                 "states moed does not save");
        return ERROR_OK;
    }
    enum error_code code = kv_file_model(o->gguf, &file.model, e);
    if (!code && mkdir(o->dir, 0700) != 0 && errno != EEXIST)
        code = error_set(e, ERROR_IO, "cannot make %.300s: %m", o->dir);
    if (!code)
        code = file_size(c, o, file.model, &file.most_bytes, e);
    if (!code)
        code = kv_file_open(&c->file, &file, e);
    if (!code)
        code = kv_saver_new(&c->pool, &c->file, &c->saver, e);
    if (code == ERROR_OK || (code == ERROR_USAGE && o->dir_size))
        return code;
    log_warn("conversations are not kept in a file: %s", e->text);
    kv_file_close(&c->file);
    return ERROR_OK;
}

static void report(const struct kv_layout *kv, uint32_t n_pages, uint64_t bytes,
                   const struct conversations_options *o)
{
    uint64_t tokens = kv_layout_positions(kv, n_pages, serving_batch_tokens(o->batch, o->parallel));
    if (kv->window)
        log_info("KV cache: up to %.2f GB of host memory, %" PRIu64
                 " tokens of a conversation; layers with a window keep %" PRIu32 " tokens",
                 (double)bytes * 1e-9, tokens, kv->window);
    else
        log_info("KV cache: up to %.2f GB of host memory, %" PRIu64 " tokens of conversations",
                 (double)bytes * 1e-9, tokens);
}

enum error_code conversations_make(struct conversations *c,
                                   const struct conversations_options *options, struct error *e)
{
    struct kv_layout kv;
    kv_layout_make(options->params, options->type, &kv);
    uint64_t bytes, page_bytes = kv.page_bytes;
    enum error_code code = size_in_bytes(options, &bytes, e);
    if (code)
        return code;
    uint32_t n = kv_pool_pages_in(bytes, page_bytes);
    if (n < kv.n_groups && options->promised && (!options->size || strchr(options->size, '%')))
        return error_set(e, ERROR_MEMORY,
                         "no memory for a KV cache: of what is free, other deployments have "
                         "promised %.2f GB to theirs: stop one, or give --kv-cache in bytes",
                         (double)options->promised * 1e-9);
    if (n < kv.n_groups)
        return error_set(e, options->size ? ERROR_USAGE : ERROR_MEMORY,
                         "a KV cache of %.1f MB does not hold %d tokens, which take %.1f MB: "
                         "give a larger --kv-cache, or a smaller --kv-type",
                         (double)bytes * 1e-6, KV_POOL_TOKENS,
                         (double)(kv.n_groups * page_bytes) * 1e-6);
    n = n < MOST_PAGES ? n : MOST_PAGES;
    code = shm_create("moed-kv", kv_pool_bytes(n, page_bytes), &c->region, e);
    if (code)
        return code;
    if (options->topology) /* else each page lies on the node of the thread that first writes it */
        numa_spread(options->topology, "the KV cache", c->region.base, c->region.bytes);
    kv_pool_init(c->region.base, n, page_bytes, options->generation);
    report(&kv, n, c->region.bytes, options);
    code = kv_pool_attach(&c->pool, c->region.base, c->region.bytes, e);
    return code ? code : open_file(c, options, e);
}

void conversations_close(struct conversations *c)
{
    uint64_t before = c->file.written;
    kv_saver_free(c->saver);
    if (c->saver)
        log_info("conversations saved: %" PRIu64 " pages, of these %" PRIu64 " at the end",
                 c->file.written, c->file.written - before);
    c->saver = NULL;
    kv_file_close(&c->file);
    shm_close(&c->region);
}

uint64_t conversations_promised_bytes(const struct conversations *c)
{
    struct stat s;
    if (!c->region.base || fstat(c->region.fd, &s) != 0)
        return 0;
    return less(c->region.bytes, (uint64_t)s.st_blocks * 512);
}

#define BYTES_HELP "Bytes of the KV cache in host memory."
static const struct metrics_row rows[] = {
    {"moed_memd_kv_bytes", "state=\"used\"", BYTES_HELP},
    {"moed_memd_kv_bytes", "state=\"free\"", BYTES_HELP},
    {"moed_memd_kv_tokens", NULL, "Tokens whose keys and values the KV cache holds."},
};

static void read_values(void *arg, double *values)
{
    struct conversations *c = arg;
    struct kv_pool_use use = kv_pool_use(&c->pool);
    values[0] = (double)use.pages_used * (double)c->pool.page_bytes;
    values[1] = (double)(use.pages - use.pages_used) * (double)c->pool.page_bytes;
    values[2] = (double)use.tokens;
}

static const struct metrics_row file_rows[] = {
    {"moed_memd_kv_file_bytes", NULL, "Bytes of conversations in the file of --kv-dir."},
    {"moed_memd_kv_file_pages_written_total", NULL, "Pages written to that file since the start."},
    {"moed_memd_kv_file_failed", NULL, "1: writing that file fails, so nothing is saved; else 0."},
};

static void read_file_values(void *arg, double *values)
{
    struct conversations *c = arg;
    values[0] = (double)atomic_load(&c->file.n_used) * (double)c->pool.page_bytes;
    values[1] = (double)atomic_load(&c->file.written);
    values[2] = atomic_load(&c->file.failed);
}

void conversations_register(struct conversations *c, struct metrics *m)
{
    metrics_group(m, rows, sizeof rows / sizeof *rows, read_values, c);
    if (c->saver)
        metrics_group(m, file_rows, sizeof file_rows / sizeof *file_rows, read_file_values, c);
}
