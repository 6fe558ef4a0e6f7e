/* Figures; see figures.h. They come from the health of memd and the worker. */
#include "client/http/watch/figures.h"

#include "client/state/deployment_status.h"
#include "sched/policy.h"

#include <inttypes.h>

static void key(struct strbuf *out, const char *name)
{
    char last = out->len ? out->data[out->len - 1] : '{';
    strbuf_printf(out, "%s\"%s\":", last == '{' ? "" : ",", name);
}

static void count(struct strbuf *out, const char *name, bool known, uint64_t value)
{
    key(out, name);
    if (known)
        strbuf_printf(out, "%" PRIu64, value);
    else
        strbuf_printf(out, "null");
}

static void ratio(struct strbuf *out, const char *name, uint64_t part, uint64_t whole)
{
    key(out, name);
    if (whole)
        strbuf_printf(out, "%.6g", (double)part / (double)whole);
    else
        strbuf_printf(out, "null");
}

/* A share of one whole: what was used in the window may have been copied before it. */
static void share(struct strbuf *out, const char *name, uint64_t part, uint64_t whole)
{
    ratio(out, name, part < whole ? part : whole, whole);
}

static void cache_figures(struct strbuf *out, const Moed__V1__CacheHealth *memd,
                          const Moed__V1__CacheHealth *worker)
{
    static const Moed__V1__CacheHealth none = MOED__V1__CACHE_HEALTH__INIT;
    const Moed__V1__CacheHealth *m = memd ? memd : &none, *w = worker ? worker : &none;
    share(out, "hit_rate", w->segments_resident, w->segments);
    count(out, "link_bytes_per_second", m->window_ns,
          m->window_ns ? (uint64_t)((double)m->link_bytes * 1e9 / (double)m->window_ns) : 0);
    share(out, "link_busy", m->link_busy_ns, m->window_ns);
    share(out, "prefetch_precision", m->predicted_used_bytes, m->predicted_bytes);
    ratio(out, "layer_ns", w->layer_ns, w->layers);
    ratio(out, "layer_planned_ns", w->layer_predicted_ns, w->layers);
    share(out, "cpu_busy", w->cpu_busy_ns, w->window_ns);
    share(out, "device_busy", w->device_busy_ns, w->window_ns);
}

static void worker_figures(struct strbuf *out, const struct workers_health *w)
{
    key(out, "tokens_per_second");
    if (w->n)
        strbuf_printf(out, "%.3f", w->tokens_per_s);
    else
        strbuf_printf(out, "null");
    count(out, "requests_running", w->n, w->running);
    count(out, "requests_waiting", w->n, w->waiting);
    count(out, "workers", true, w->n);
}

static void memory_figures(struct strbuf *out, const Moed__V1__HealthReply *memd)
{
    const Moed__V1__DeviceMemory *d = memd ? memd->device_memory : NULL;
    key(out, "kv_bytes");
    strbuf_printf(out, "{");
    count(out, "host", memd, memd ? memd->kv_used_bytes : 0);
    count(out, "device", d && d->kv_bytes, d ? d->kv_bytes : 0);
    strbuf_printf(out, "}");
    count(out, "device_cache_bytes", d, d ? d->expert_bytes : 0);
    count(out, "device_cache_most_bytes", d, d ? d->expert_bytes_most : 0);
}

/* Those to choose from. */
static void policies(struct strbuf *out, bool has_cache)
{
    const struct sched_policy *p;
    key(out, "policies");
    if (!has_cache) {
        strbuf_printf(out, "null");
        return;
    }
    for (uint32_t i = 0; (p = sched_policy_at(i)); i++)
        strbuf_printf(out, "%s\"%s\"", i ? "," : "[", p->name);
    strbuf_printf(out, "]");
}

void figures_json(const char *run, struct strbuf *out)
{
    Moed__V1__Reply *memd_reply = NULL;
    struct error e = {0};
    const Moed__V1__HealthReply *memd = NULL;
    if (deployment_health(run, "memd", &memd_reply, &e) == ERROR_OK)
        memd = memd_reply->health;
    struct workers_health workers = deployment_workers_health(run);
    strbuf_printf(out, "{");
    cache_figures(out, memd ? memd->cache : NULL, workers.has_cache ? &workers.cache : NULL);
    worker_figures(out, &workers);
    memory_figures(out, memd);
    policies(out, memd && memd->cache);
    strbuf_printf(out, "}");
    if (memd_reply)
        moed__v1__reply__free_unpacked(memd_reply, NULL);
}
