/* What the KV cache holds, for `moed cache`; see worker.h. The engine's thread reads it. */
#include "worker.h"

#include "base/strbuf.h"
#include "worker/kv/prefix_cache.h"
#include "worker/kv/state_snapshots.h"

#include <stdlib.h>
#include <string.h>

enum {
    MOST_LISTED = 1000,
    BEGINNING_TOKENS = 16,
};

struct cache_report {
    struct worker *w;
    bool clear;
    uint32_t most;
    /* filled in */
    uint32_t cleared, total, n;
    struct prefix_cache_stats stats;
    struct kv_leaf leaves[MOST_LISTED]; /* [n], in order of `is_later` */
    struct strbuf begins[MOST_LISTED];
};

static bool is_later(const struct kv_leaf *a, const struct kv_leaf *b)
{
    return a->used_s != b->used_s ? a->used_s > b->used_s : a->tokens > b->tokens;
}

/* Keeps the latest ones. */
static void add_leaf(void *arg, const struct kv_leaf *leaf)
{
    struct cache_report *report = arg;
    report->total++;
    if (report->n == report->most && !is_later(leaf, &report->leaves[report->n - 1]))
        return;
    uint32_t at = report->n < report->most ? report->n++ : report->n - 1;
    for (; at > 0 && is_later(leaf, &report->leaves[at - 1]); at--)
        report->leaves[at] = report->leaves[at - 1];
    report->leaves[at] = *leaf;
}

static void read_cache(void *arg)
{
    struct cache_report *report = arg;
    const struct worker *w = report->w;
    struct error e;
    if (report->clear)
        report->cleared = prefix_cache_clear(w->prefixes);
    if (report->clear && w->snapshots)
        state_snapshots_clear(w->snapshots);
    report->stats = prefix_cache_stats(w->prefixes);
    if (report->most)
        prefix_cache_visit(w->prefixes, add_leaf, report);
    for (uint32_t i = 0; i < report->n; i++) {
        uint32_t tokens[KV_POOL_TOKENS];
        uint32_t n = prefix_cache_tokens(w->prefixes, report->leaves[i].root, tokens);
        strbuf_clear(&report->begins[i]);
        tokenizer_decode(w->tokenizer, tokens, n < BEGINNING_TOKENS ? n : BEGINNING_TOKENS, true,
                         &report->begins[i], &e);
    }
}

static void fill_conversation(const struct cache_report *report, uint32_t i,
                              Moed__V1__Conversation *out)
{
    const struct kv_leaf *leaf = &report->leaves[i];
    const struct strbuf *begins = &report->begins[i];
    moed__v1__conversation__init(out);
    out->tokens = leaf->tokens;
    out->used_s = leaf->used_s;
    out->in_use = leaf->in_use;
    out->begins = (ProtobufCBinaryData){begins->len, (uint8_t *)begins->data};
}

enum error_code worker_reply_cache(struct worker *w, const Moed__V1__CacheRequest *request,
                                   Moed__V1__Reply *reply, struct error *e)
{
    /* static: the reply points into them, and the daemon handles one request at a time */
    static struct cache_report report;
    static Moed__V1__CacheReply cache;
    static Moed__V1__Conversation conversations[MOST_LISTED];
    static Moed__V1__Conversation *pointers[MOST_LISTED];
    report.w = w;
    report.clear = request->clear;
    report.most = request->conversations < MOST_LISTED ? request->conversations : MOST_LISTED;
    report.cleared = report.total = report.n = 0;
    if (!engine_call(w->engine, read_cache, &report))
        return error_set(e, ERROR_UNAVAILABLE,
                         "the worker is stopping, or computes a long step: try again");
    struct engine_status status = engine_status(w->engine);
    moed__v1__cache_reply__init(&cache);
    cache.page_bytes = report.stats.page_bytes;
    cache.page_tokens = KV_POOL_TOKENS;
    cache.pages = report.stats.pages;
    cache.free = report.stats.free;
    cache.in_use = report.stats.in_use;
    cache.evictions = report.stats.evictions;
    cache.cached_tokens = status.cached_tokens;
    cache.prompt_tokens = status.prompt_tokens;
    cache.cleared = report.cleared;
    cache.total = report.total;
    cache.n_conversations = report.n;
    cache.conversations = pointers;
    for (uint32_t i = 0; i < report.n; i++) {
        fill_conversation(&report, i, &conversations[i]);
        pointers[i] = &conversations[i];
    }
    reply->body_case = MOED__V1__REPLY__BODY_CACHE;
    reply->cache = &cache;
    return ERROR_OK;
}
