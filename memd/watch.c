/* The reply with the placement map; see watch.h. The message is static: memd answers one request at
 * a time. */
#include "watch.h"

/* The first request makes the map. */
static enum error_code make_map(struct memd *m, struct error *e)
{
    const struct pool_header *h = &m->plan.header;
    const struct shm *tier = m->tier ? tier_region(m->tier) : NULL;
    enum error_code code = ERROR_OK;
    unsigned n = m->caches.n ? m->caches.n : 1;
    for (unsigned i = 0; i < n && !code; i++) {
        const struct shm *words = m->caches.n ? cache_residency(m->caches.each[i]) : &m->residency;
        code = residency_attach(&m->watch.residency[i], words->base, words->bytes, e);
    }
    if (!code && tier)
        code = host_tier_attach(&m->watch.tier, tier->base, tier->bytes, e);
    if (code)
        return code;
    const struct place_map_sources sources = {.slabs = m->plan.slabs,
                                              .n_layers = h->n_layers,
                                              .n_experts = h->params.router.n_experts,
                                              .residency = m->watch.residency,
                                              .n_devices = n,
                                              .tier = tier ? &m->watch.tier : NULL};
    return place_map_new(&sources, &m->watch.map, e);
}

enum error_code memd_reply_placement_map(struct memd *m,
                                         const Moed__V1__PlacementMapRequest *request,
                                         Moed__V1__Reply *reply, struct error *e)
{
    static Moed__V1__PlacementMapReply answer;
    enum error_code code = m->watch.map ? ERROR_OK : make_map(m, e);
    if (code)
        return code;
    struct place_map *map = m->watch.map;
    place_map_update(map);
    moed__v1__placement_map_reply__init(&answer);
    answer.generation = m->generation;
    answer.version = map->version;
    answer.model_path = m->plan.header.path;
    answer.policy = (char *)(m->caches.n ? m->choice.policy->name : "");
    answer.n_layers = map->n_rows;
    answer.layers = map->layers;
    answer.experts = map->sources.n_experts;
    answer.experts_used = m->plan.header.params.router.n_used;
    if (request->generation == m->generation && request->version &&
        request->version <= map->version) {
        answer.n_changes = place_map_changes_since(map, request->version);
        answer.changes = map->changes;
    } else {
        answer.places = (ProtobufCBinaryData){map->n_cells, map->places};
    }
    reply->body_case = MOED__V1__REPLY__BODY_PLACEMENT_MAP;
    reply->placement_map = &answer;
    return ERROR_OK;
}
