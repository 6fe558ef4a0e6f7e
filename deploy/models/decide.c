/* What to do next; see decide.h. */
#include "deploy/models/decide.h"

bool model_is_wanted(const struct model_facts *m, uint64_t now_ns)
{
    return m->waits_ns && m->wanted_ns && now_ns - m->wanted_ns < MODEL_WANTED_NS;
}

static bool is_startable(const struct model_facts *m, uint64_t now_ns)
{
    if (!model_is_wanted(m, now_ns))
        return false;
    return m->state == MODEL_OFF ||
           (m->state == MODEL_FAILED && now_ns - m->failed_ns >= MODEL_RETRY_NS);
}

static uint64_t idle_since(const struct model_facts *m)
{
    return m->used_ns > m->wanted_ns ? m->used_ns : m->wanted_ns;
}

/* It may be stopped where its memory is needed. */
static bool is_idle(const struct model_facts *m, uint64_t now_ns)
{
    return m->own && m->state == MODEL_UP && !m->busy && now_ns - idle_since(m) >= MODEL_GRACE_NS;
}

static bool is_overdue(const struct model_facts *m, uint64_t now_ns)
{
    if (m->own && m->state == MODEL_UP && (m->broken || (m->drop && !m->busy)))
        return true;
    return is_idle(m, now_ns) && m->keep_ns != MODEL_FOREVER &&
           now_ns - idle_since(m) >= m->keep_ns;
}

struct sums {
    unsigned up;         /* own models */
    uint64_t need_bytes; /* with their KV caches */
    bool gpu;            /* one of them has a GPU's memory */
    bool moving;         /* one starts or stops */
};

static struct sums sum_up(const struct model_facts *models, size_t count)
{
    struct sums s = {0};
    for (size_t i = 0; i < count; i++) {
        const struct model_facts *m = &models[i];
        s.moving |= m->state == MODEL_STARTING || m->state == MODEL_STOPPING;
        if (!m->own || m->state != MODEL_UP)
            continue;
        s.up++;
        s.need_bytes += m->need_bytes + m->kv_bytes;
        s.gpu |= m->on_gpu;
    }
    return s;
}

static bool fits(const struct model_facts *m, const struct sums *s, const struct models_limits *l)
{
    if (l->most && s->up >= l->most)
        return false;
    if (s->gpu) /* a deployment on a GPU has all of its memory that experts can use */
        return false;
    uint64_t need = m->need_bytes + m->kv_least_bytes;
    return need <= l->available_bytes && need <= l->budget_bytes &&
           s->need_bytes <= l->budget_bytes - need;
}

uint64_t models_kv_bytes(const struct model_facts *models, size_t count, size_t model,
                         const struct models_limits *l)
{
    const struct model_facts *m = &models[model];
    struct sums s = sum_up(models, count);
    uint64_t budget = l->budget_bytes > s.need_bytes ? l->budget_bytes - s.need_bytes : 0;
    uint64_t most = budget < l->available_bytes ? budget : l->available_bytes;
    uint64_t half = most > m->need_bytes ? (most - m->need_bytes) / 2 : 0;
    return half < m->kv_least_bytes  ? m->kv_least_bytes
           : half > m->kv_most_bytes ? m->kv_most_bytes
                                     : half;
}

/* The own model whose test is true and that has been idle for longest; count: none. */
static size_t longest_idle(const struct model_facts *models, size_t count, uint64_t now_ns,
                           bool (*test)(const struct model_facts *, uint64_t))
{
    size_t best = count;
    for (size_t i = 0; i < count; i++)
        if (test(&models[i], now_ns) &&
            (best == count || idle_since(&models[i]) < idle_since(&models[best])))
            best = i;
    return best;
}

/* The model that somebody has waited for longest; count: none. */
static size_t first_in_line(const struct model_facts *models, size_t count, uint64_t now_ns)
{
    size_t best = count;
    for (size_t i = 0; i < count; i++)
        if (is_startable(&models[i], now_ns) &&
            (best == count || models[i].waits_ns < models[best].waits_ns))
            best = i;
    return best;
}

struct action models_decide(const struct model_facts *models, size_t count,
                            const struct models_limits *l)
{
    struct sums s = sum_up(models, count);
    size_t wanted = first_in_line(models, count, l->now_ns);
    size_t overdue = longest_idle(models, count, l->now_ns, is_overdue);
    if (s.moving)
        return (struct action){.kind = ACTION_NONE};
    if (overdue < count) /* first, as it frees memory */
        return (struct action){ACTION_STOP, overdue};
    if (wanted < count && fits(&models[wanted], &s, l))
        return (struct action){ACTION_START, wanted};
    if (wanted < count) {
        size_t victim = longest_idle(models, count, l->now_ns, is_idle);
        if (victim < count)
            return (struct action){ACTION_STOP, victim};
        if (s.up == 0) /* nothing of ours takes memory, and still it does not fit */
            return (struct action){ACTION_REFUSE, wanted};
        return (struct action){.kind = ACTION_NONE};
    }
    return (struct action){.kind = ACTION_NONE};
}
