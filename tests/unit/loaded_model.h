/* A model file, or a small model made by lib/mkmodel, loaded into a pool in this process, as memd
 * does. */
#ifndef MOED_TESTS_LOADED_MODEL_H
#define MOED_TESTS_LOADED_MODEL_H

#include "base/error.h"
#include "exec/pool.h"
#include "memd/load/load.h"
#include "mkmodel/mkmodel.h"
#include "model/pool_plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Of two layers with three experts each. */
static inline void small_model(struct mkmodel_options *o, const char *arch, const char *type)
{
    mkmodel_defaults(o);
    o->arch = arch;
    o->type = type;
    o->layers = 2;
    o->hidden = 256;
    o->heads = 4;
    o->kv_heads = 2;
    o->head_dim = 64;
    o->experts = 3;
    o->top_k = 2;
    o->expert_width = 256;
    o->vocab = 300;
}

struct loaded_model {
    char made[64]; /* the file to remove; "": none */
    struct gguf *g;
    struct pool_plan plan;
    uint8_t *pool;
    struct pool_map map;
};

static inline void must(enum error_code code, const struct error *e)
{
    if (code) {
        fprintf(stderr, "%s: %s\n", error_name(code), e->text);
        abort();
    }
}

static inline void load_file(struct loaded_model *m, const char *path)
{
    struct error e;
    struct pool *threads;
    m->made[0] = 0;
    must(gguf_open(path, &m->g, &e), &e);
    must(pool_plan_new(m->g, &m->plan, &e), &e);
    must(pool_plan_read_factors(&m->plan, m->g, &e), &e);
    m->pool = aligned_alloc(4096, m->plan.header.bytes);
    if (!m->pool)
        abort();
    memset(m->pool, 0, m->plan.header.bytes);
    must(pool_new("test", 2, false, 0, &threads, &e), &e);
    static const struct topology two = {.n_nodes = 2}; /* both with the memory of node 0 */
    struct numa_places places;
    numa_places_init(&places, &two, &m->plan, 4096);
    must(load_weights(m->g, &m->plan, m->pool, &places, threads, NULL, NULL, &e), &e);
    pool_free(threads);
    must(pool_plan_write(&m->plan, m->g, 1, m->pool, &e), &e);
    must(pool_map_attach(m->pool, m->plan.header.bytes, &m->map, &e), &e);
}

static inline void load_model(struct loaded_model *m, const struct mkmodel_options *o)
{
    struct error e;
    struct mkmodel_result result;
    char path[64];
    snprintf(path, sizeof path, "/tmp/moed-test-model-%d.gguf", (int)getpid());
    must(mkmodel_write(o, path, NULL, NULL, &result, &e), &e);
    load_file(m, path);
    memcpy(m->made, path, sizeof path);
}

static inline void unload_model(struct loaded_model *m)
{
    pool_plan_free(&m->plan);
    gguf_close(m->g);
    free(m->pool);
    if (m->made[0])
        unlink(m->made);
}

#endif
