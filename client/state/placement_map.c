/* The placement map; see placement_map.h. */
#include "client/state/placement_map.h"

#include "base/arrays.h"
#include "client/state/deployment_status.h"
#include "daemon/control.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FETCH_TIMEOUT_MS 2000
#define MOST_CELLS       (1u << 20)
/* The worker's byte of an expert (ActivityReply). */
#define LEVEL_BITS 0x1f
#define CHOSEN_BIT 0x80

void placement_map_init(struct placement_map *m)
{
    *m = (struct placement_map){0};
}

void placement_map_fini(struct placement_map *m)
{
    free(m->layers); /* the first array: its memory holds all */
    placement_map_init(m);
}

/* ---- memd ---- */

static enum error_code impossible(struct error *e)
{
    return error_set(e, ERROR_PROTOCOL, "memd sent an impossible placement map");
}

static void take_model(struct placement_map *m, const char *path)
{
    const char *slash = strrchr(path, '/');
    snprintf(m->model, sizeof m->model, "%s", slash ? slash + 1 : path);
    char *end = strrchr(m->model, '.');
    if (end && end != m->model && strcmp(end, ".gguf") == 0)
        *end = '\0';
}

static enum error_code take_whole(struct placement_map *m, const Moed__V1__PlacementMapReply *r,
                                  struct error *e)
{
    uint64_t n = (uint64_t)r->n_layers * r->experts;
    if (!n || n > MOST_CELLS || r->places.len != n)
        return impossible(e);
    struct placement_map new = {0};
    if (!ARRAYS_NEW(ARRAY(new.layers, r->n_layers), ARRAY(new.now.place, n), ARRAY(new.now.use, n),
                    ARRAY(new.now.chosen, n), ARRAY(new.before.place, n), ARRAY(new.before.use, n),
                    ARRAY(new.before.chosen, n)))
        return error_set(e, ERROR_MEMORY, "no memory for the placement map");
    new.n_layers = r->n_layers;
    new.experts = r->experts;
    new.experts_used = r->experts_used;
    new.n_cells = (uint32_t)n;
    new.is_new = true;
    take_model(&new, r->model_path);
    memcpy(new.layers, r->layers, r->n_layers * sizeof *new.layers);
    memcpy(new.now.place, r->places.data, n);
    placement_map_fini(m);
    *m = new;
    return ERROR_OK;
}

static enum error_code take_changes(struct placement_map *m, const Moed__V1__PlacementMapReply *r,
                                    struct error *e)
{
    for (size_t i = 0; i < r->n_changes; i++) {
        if (r->changes[i] / 8 >= m->n_cells)
            return impossible(e);
        m->now.place[r->changes[i] / 8] = r->changes[i] % 8;
    }
    return ERROR_OK;
}

static enum error_code fetch_places(struct placement_map *m, const char *run, struct error *e)
{
    Moed__V1__PlacementMapRequest ask = MOED__V1__PLACEMENT_MAP_REQUEST__INIT;
    Moed__V1__Request request = MOED__V1__REQUEST__INIT;
    Moed__V1__Reply *reply;
    ask.generation = m->generation;
    ask.version = m->version;
    request.body_case = MOED__V1__REQUEST__BODY_PLACEMENT_MAP;
    request.placement_map = &ask;
    enum error_code code = control_call(run, "memd", &request, MOED__V1__REPLY__BODY_PLACEMENT_MAP,
                                        FETCH_TIMEOUT_MS, &reply, e);
    if (code)
        return code;
    const Moed__V1__PlacementMapReply *r = reply->placement_map;
    code = r->places.len ? take_whole(m, r, e) : take_changes(m, r, e);
    if (!code) {
        m->generation = r->generation;
        m->version = r->version;
        m->is_new = m->is_new || strcmp(m->policy, r->policy) != 0;
        snprintf(m->policy, sizeof m->policy, "%s", r->policy);
    }
    moed__v1__reply__free_unpacked(reply, NULL);
    return code;
}

/* ---- The workers ---- */

/* Adds a worker's steps. An expert is used as much as by the worker that uses it most. */
static void take_activity(struct placement_map *m, const Moed__V1__ActivityReply *r)
{
    if (r->experts.len != m->n_cells)
        return;
    m->step += r->step;
    for (uint32_t i = 0; i < m->n_cells; i++) {
        uint8_t byte = r->experts.data[i];
        uint8_t use = (uint8_t)((byte & LEVEL_BITS) * 255u / LEVEL_BITS);
        m->now.use[i] = use > m->now.use[i] ? use : m->now.use[i];
        m->now.chosen[i] |= (byte & CHOSEN_BIT) != 0;
    }
}

static void fetch_activity_of(struct placement_map *m, const char *run, const char *process)
{
    Moed__V1__ActivityRequest ask = MOED__V1__ACTIVITY_REQUEST__INIT;
    Moed__V1__Request request = MOED__V1__REQUEST__INIT;
    Moed__V1__Reply *reply = NULL;
    struct error why = {0};
    request.body_case = MOED__V1__REQUEST__BODY_ACTIVITY;
    request.activity = &ask;
    if (control_call(run, process, &request, MOED__V1__REPLY__BODY_ACTIVITY, FETCH_TIMEOUT_MS,
                     &reply, &why))
        return;
    take_activity(m, reply->activity);
    moed__v1__reply__free_unpacked(reply, NULL);
}

static void fetch_activity(struct placement_map *m, const char *run)
{
    const char *names[SUPERVISE_WORKERS];
    unsigned n = deployment_workers(run, names);
    m->step = 0;
    memset(m->now.use, 0, m->n_cells);
    memset(m->now.chosen, 0, m->n_cells);
    for (unsigned i = 0; i < n; i++)
        fetch_activity_of(m, run, names[i]);
}

enum error_code placement_map_fetch(struct placement_map *m, const char *run, struct error *e)
{
    m->is_new = false;
    m->step_before = m->step;
    if (m->n_cells) {
        memcpy(m->before.place, m->now.place, m->n_cells);
        memcpy(m->before.use, m->now.use, m->n_cells);
        memcpy(m->before.chosen, m->now.chosen, m->n_cells);
    }
    enum error_code code = fetch_places(m, run, e);
    if (code)
        m->version = 0; /* what was taken may be a part: ask for the whole map */
    else
        fetch_activity(m, run);
    return code;
}

/* ---- JSON ---- */

static void append_base64(struct strbuf *out, const uint8_t *bytes, uint32_t n)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (uint32_t i = 0; i < n; i += 3) {
        uint32_t left = n - i, group = (uint32_t)bytes[i] << 16;
        group |= left > 1 ? (uint32_t)bytes[i + 1] << 8 : 0;
        group |= left > 2 ? bytes[i + 2] : 0;
        char text[4] = {digits[group >> 18], digits[group >> 12 & 63],
                        left > 1 ? digits[group >> 6 & 63] : '=',
                        left > 2 ? digits[group & 63] : '='};
        strbuf_append(out, text, 4);
    }
}

static void cells_json(struct strbuf *out, const char *key, const uint8_t *bytes, uint32_t n)
{
    strbuf_printf(out, ",\"%s\":\"", key);
    append_base64(out, bytes, n);
    strbuf_printf(out, "\"");
}

static void step_json(const struct placement_map *m, struct strbuf *out)
{
    if (m->step)
        strbuf_printf(out, "\"step\":%" PRIu64, m->step);
    else
        strbuf_printf(out, "\"step\":null");
}

void placement_map_json(const struct placement_map *m, const char *deployment, struct strbuf *out)
{
    const char *model = strcmp(deployment, "default") == 0 ? m->model : deployment;
    strbuf_printf(out, "{\"model\":");
    strbuf_json_string(out, model, strlen(model));
    strbuf_printf(out, ",\"policy\":");
    if (m->policy[0])
        strbuf_json_string(out, m->policy, strlen(m->policy));
    else
        strbuf_printf(out, "null");
    strbuf_printf(out, ",\"layers\":[");
    for (uint32_t i = 0; i < m->n_layers; i++)
        strbuf_printf(out, "%s%" PRIu32, i ? "," : "", m->layers[i]);
    strbuf_printf(out, "],\"experts\":%" PRIu32 ",\"experts_used\":%" PRIu32, m->experts,
                  m->experts_used);
    strbuf_printf(out, ",");
    step_json(m, out);
    cells_json(out, "place", m->now.place, m->n_cells);
    cells_json(out, "use", m->now.use, m->n_cells);
    cells_json(out, "chosen", m->now.chosen, m->n_cells);
    strbuf_printf(out, "}");
}

static char *put_number(char *end, uint32_t value)
{
    do
        *--end = (char)('0' + value % 10);
    while (value /= 10);
    return end;
}

/* ",[index,place,use,chosen]", four times a second for thousands of experts: without printf. */
static void cell_json(const struct placement_map *m, uint32_t i, struct strbuf *out)
{
    char text[32], *end = text + sizeof text, *at = end;
    *--at = ']';
    at = put_number(at, m->now.chosen[i]);
    *--at = ',';
    at = put_number(at, m->now.use[i]);
    *--at = ',';
    at = put_number(at, m->now.place[i]);
    *--at = ',';
    at = put_number(at, i);
    *--at = '[';
    if (out->data[out->len - 1] != '[')
        *--at = ',';
    strbuf_append(out, at, (size_t)(end - at));
}

static bool is_same(const struct placement_map *m, uint32_t i)
{
    return m->now.place[i] == m->before.place[i] && m->now.use[i] == m->before.use[i] &&
           m->now.chosen[i] == m->before.chosen[i];
}

bool placement_map_change_json(const struct placement_map *m, struct strbuf *out)
{
    bool changed = m->step != m->step_before;
    size_t begin = out->len;
    strbuf_printf(out, "{");
    step_json(m, out);
    strbuf_printf(out, ",\"cells\":[");
    for (uint32_t i = 0; i < m->n_cells && !out->failed; i++) {
        if (is_same(m, i))
            continue;
        cell_json(m, i, out);
        changed = true;
    }
    strbuf_printf(out, "]}");
    if (changed)
        return true;
    if (out->data)
        out->data[out->len = begin] = '\0';
    return false;
}
