/* moed cache: lists the conversations that the KV cache of a deployment holds, or drops them. */
#include "client/cli/ask.h"
#include "client/cli/commands.h"
#include "client/cli/deployment.h"
#include "base/quantity.h"
#include "daemon/control.h"

#include <inttypes.h>
#include <stdio.h>
#include <time.h>

enum { CACHE_TIMEOUT_MS = 30000, LISTED = 20, MOST_LISTED = 1000 };

static enum error_code call(const char *run, const char *process, bool clear,
                            uint32_t conversations, Moed__V1__Reply **reply, struct error *e)
{
    Moed__V1__CacheRequest cache = MOED__V1__CACHE_REQUEST__INIT;
    cache.clear = clear;
    cache.conversations = conversations;
    Moed__V1__Request request = MOED__V1__REQUEST__INIT;
    request.body_case = MOED__V1__REQUEST__BODY_CACHE;
    request.cache = &cache;
    return control_call(run, process, &request, MOED__V1__REPLY__BODY_CACHE, CACHE_TIMEOUT_MS,
                        reply, e);
}

/* Asks all workers, which share the conversations; each counts its own requests. Only the first
 * lists conversations. */
static enum error_code call_all(const char *run, bool clear, uint32_t conversations,
                                Moed__V1__Reply **all, struct error *e)
{
    const char *names[SUPERVISE_WORKERS];
    unsigned n = deployment_workers(run, names);
    *all = NULL;
    for (unsigned i = 0; i < n; i++) {
        Moed__V1__Reply *reply;
        enum error_code code = call(run, names[i], clear, *all ? 0 : conversations, &reply, e);
        if (code && *all)
            moed__v1__reply__free_unpacked(*all, NULL);
        if (code)
            return code;
        if (!*all) {
            *all = reply;
            continue;
        }
        (*all)->cache->evictions += reply->cache->evictions;
        (*all)->cache->cached_tokens += reply->cache->cached_tokens;
        (*all)->cache->prompt_tokens += reply->cache->prompt_tokens;
        (*all)->cache->cleared += reply->cache->cleared;
        moed__v1__reply__free_unpacked(reply, NULL);
    }
    return n ? ERROR_OK : error_set(e, ERROR_UNAVAILABLE, "no worker runs now; try again");
}

static uint64_t age_s(const Moed__V1__Conversation *c)
{
    uint64_t now = (uint64_t)time(NULL);
    return now > c->used_s ? now - c->used_s : 0;
}

static void print_age(uint64_t s)
{
    if (s < 120)
        printf("%6" PRIu64 " s", s);
    else if (s < 7200)
        printf("%4" PRIu64 " min", s / 60);
    else
        printf("%6" PRIu64 " h", s / 3600);
}

/* The text's printable part, in one line. */
static void print_beginning(ProtobufCBinaryData text)
{
    for (size_t i = 0; i < text.len && i < 44; i++)
        putchar(text.data[i] < 0x20 || text.data[i] >= 0x7f ? ' ' : text.data[i]);
    putchar('\n');
}

static void print_table(const Moed__V1__CacheReply *c)
{
    char used[24], all[24];
    uint64_t tokens = c->prompt_tokens + c->cached_tokens;
    quantity_format_bytes((uint64_t)(c->pages - c->free) * c->page_bytes, used);
    quantity_format_bytes((uint64_t)c->pages * c->page_bytes, all);
    printf("KV cache: %s of %s used, %" PRIu32 " conversations, %" PRIu64 " pages evicted\n", used,
           all, c->total, c->evictions);
    printf("prompts:  %" PRIu64 " of %" PRIu64 " tokens found in the cache\n", c->cached_tokens,
           tokens);
    if (!c->n_conversations)
        return;
    printf("\n  tokens      used  state   begins with\n");
    for (size_t i = 0; i < c->n_conversations; i++) {
        const Moed__V1__Conversation *one = c->conversations[i];
        printf("%8" PRIu32 "  ", one->tokens);
        print_age(age_s(one));
        printf("  %-6s  ", one->in_use ? "in use" : "kept");
        print_beginning(one->begins);
    }
    if (c->total > c->n_conversations)
        printf("... and %" PRIu64 " more (--all)\n", (uint64_t)(c->total - c->n_conversations));
}

static void append_conversation(struct strbuf *b, const Moed__V1__Conversation *c)
{
    strbuf_printf(b,
                  "{\"tokens\": %" PRIu32 ", \"used_s\": %" PRIu64 ", \"in_use\": %s, \"begins\": ",
                  c->tokens, c->used_s, c->in_use ? "true" : "false");
    strbuf_json_string(b, (const char *)c->begins.data, c->begins.len);
    strbuf_printf(b, "}");
}

static bool print_json(const Moed__V1__CacheReply *c)
{
    struct strbuf b;
    strbuf_init(&b);
    strbuf_printf(&b,
                  "{\"page_bytes\": %" PRIu64 ", \"page_tokens\": %" PRIu32 ", \"pages\": %" PRIu32
                  ", \"free\": %" PRIu32 ", \"in_use\": %" PRIu32 ", \"evictions\": %" PRIu64
                  ", \"cached_tokens\": %" PRIu64 ", \"prompt_tokens\": %" PRIu64
                  ", \"cleared\": %" PRIu32 ", \"total\": %" PRIu32 ", \"conversations\": [",
                  c->page_bytes, c->page_tokens, c->pages, c->free, c->in_use, c->evictions,
                  c->cached_tokens, c->prompt_tokens, c->cleared, c->total);
    for (size_t i = 0; i < c->n_conversations; i++) {
        strbuf_printf(&b, i ? ", " : "");
        append_conversation(&b, c->conversations[i]);
    }
    strbuf_printf(&b, "]}\n");
    bool printed = !b.failed && ask_print(b.data, b.len);
    strbuf_fini(&b);
    return printed;
}

static void print_cleared(const Moed__V1__CacheReply *c)
{
    char bytes[24];
    quantity_format_bytes((uint64_t)c->cleared * c->page_bytes, bytes);
    printf("%s are free for other conversations; memd keeps the memory\n", bytes);
}

int cache_main(int argc, char **argv)
{
    const char *name = NULL;
    bool clear = false, all = false, json = false;
    const struct option_spec table[] = {
        {"name", OPTION_STRING, &name, 0, 0, "NAME", "select a deployment (default: default)"},
        {"clear", OPTION_BOOL, &clear, 0, 0, NULL, "drop the conversations that no request uses"},
        {"all", OPTION_BOOL, &all, 0, 0, NULL, "list up to 1000 conversations, not 20"},
        {"json", OPTION_BOOL, &json, 0, 0, NULL, "print one JSON object"},
        {0},
    };
    int n, exit_code;
    if (!ask_arguments(table, "cache", "[OPTION]...",
                       "Lists the conversations that the KV cache holds, the last used first. A\n"
                       "prompt that begins as one of them is computed only from there on.",
                       argc, argv, 0, 0, &n, &exit_code))
        return exit_code;
    char run[RUN_DIR_BYTES];
    if (!deployment_find_running(name, run, &exit_code))
        return exit_code;
    struct error e = {0};
    Moed__V1__Reply *reply;
    if (call_all(run, clear, clear && !json ? 0 : all ? MOST_LISTED : LISTED, &reply, &e)) {
        cli_complain("cache: %s", e.text);
        return CLI_FAILURE;
    }
    bool printed = true;
    if (json)
        printed = print_json(reply->cache);
    else if (clear)
        print_cleared(reply->cache);
    else
        print_table(reply->cache);
    moed__v1__reply__free_unpacked(reply, NULL);
    return printed ? CLI_OK : CLI_FAILURE;
}
