/* memd's part of the KV pool; see conversations.h. */
#include "memd/host/conversations.h"

#include "base/log.h"
#include "base/machine_memory.h"
#include "base/quantity.h"
#include "model/memory_need.h"

#include <inttypes.h>
#include <string.h>

enum {
    DEFAULT_SHARE = 50,  /* percent of the free memory */
    MOST_PAGES = 1 << 16 /* the worker looks through all of them */
};

/* The size that is asked for, of `available` bytes. */
static enum error_code size_in_bytes(const char *text, uint64_t available, uint64_t *out,
                                     struct error *e)
{
    double value;
    size_t len = text ? strlen(text) : 0;
    if (available > (uint64_t)1 << 60) /* not known */
        available = (uint64_t)1 << 32;
    if (!text) {
        *out = available / 100 * DEFAULT_SHARE;
        return ERROR_OK;
    }
    if (quantity_parse(text, len, quantity_percent, &value) && value <= 100)
        *out = (uint64_t)((double)available * value / 100);
    else if (quantity_parse(text, len, quantity_sizes, &value) && value < 0x1p62)
        *out = (uint64_t)value;
    else
        return error_set(e, ERROR_USAGE,
                         "--kv-cache: '%.20s' is no size; give bytes (K, M, G, Ki, Mi, Gi) or a "
                         "share of the free memory, as 25%%",
                         text);
    if (*out <= available)
        return ERROR_OK;
    return error_set(e, ERROR_MEMORY,
                     "--kv-cache %.20s: only %.2f GB of memory are available after the weights",
                     text, (double)available * 1e-9);
}

enum error_code conversations_make(struct conversations *c,
                                   const struct conversations_options *options, struct error *e)
{
    uint64_t bytes, page_bytes = memory_kv_page_bytes(options->params, options->type);
    enum error_code code = size_in_bytes(options->size, memory_available_bytes(), &bytes, e);
    if (code)
        return code;
    uint32_t n = kv_pool_pages_in(bytes, page_bytes);
    if (n == 0)
        return error_set(e, options->size ? ERROR_USAGE : ERROR_MEMORY,
                         "a KV cache of %.1f MB holds no page of %d tokens, which takes %.1f MB: "
                         "give a larger --kv-cache, or a smaller --kv-type",
                         (double)bytes * 1e-6, KV_POOL_TOKENS, (double)page_bytes * 1e-6);
    n = n < MOST_PAGES ? n : MOST_PAGES;
    code = shm_create("moed-kv", kv_pool_bytes(n, page_bytes), &c->region, e);
    if (code)
        return code;
    kv_pool_init(c->region.base, n, page_bytes, options->generation);
    log_info("KV cache: up to %.2f GB of host memory, %" PRIu64 " tokens of conversations",
             (double)c->region.bytes * 1e-9, (uint64_t)n * KV_POOL_TOKENS);
    return kv_pool_attach(&c->pool, c->region.base, c->region.bytes, e);
}

void conversations_close(struct conversations *c)
{
    shm_close(&c->region);
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

void conversations_register(struct conversations *c, struct metrics *m)
{
    metrics_group(m, rows, sizeof rows / sizeof *rows, read_values, c);
}
