/* Graphs of layers; see layer_graphs.h. */
#include "layer_graphs.h"

#include "base/arrays.h"
#include "base/log.h"

#include <stdlib.h>
#include <string.h>

/* Enough for batches of a few sizes, each at its reach and at the next one. Each shape takes device
 * memory that no plan includes: some kilobytes an operation. */
enum { SHAPES = 6 };

struct shape {
    uint32_t n, positions; /* 0: free */
    uint64_t used;
    struct device_graph **graphs; /* [n_layers]; NULL: none yet */
    bool *met;                    /* [n_layers] */
    void *memory;                 /* holds both */
};

struct layer_graphs {
    const struct device_module *module;
    struct device_stream *stream;
    uint32_t n_layers;
    uint64_t uses;
    struct shape shapes[SHAPES];
    struct device_graph **kept; /* the place of the graph that is being captured; NULL: none */
    bool off;                   /* no more graphs: one failed, or MOED_DEVICE_GRAPHS=0 */
};

static void forget(struct layer_graphs *g, struct shape *s)
{
    for (uint32_t i = 0; i < g->n_layers; i++) {
        g->module->graph_free(s->graphs[i]);
        s->graphs[i] = NULL;
        s->met[i] = false;
    }
    s->n = s->positions = 0;
}

struct layer_graphs *layer_graphs_new(const struct device_module *module,
                                      struct device_stream *stream, uint32_t n_layers)
{
    struct layer_graphs *g = calloc(1, sizeof *g);
    if (!g)
        return NULL;
    g->module = module;
    g->stream = stream;
    g->n_layers = n_layers;
    const char *wanted = getenv("MOED_DEVICE_GRAPHS");
    g->off = wanted && strcmp(wanted, "0") == 0;
    for (unsigned i = 0; i < SHAPES; i++) {
        struct shape *s = &g->shapes[i];
        s->memory = ARRAYS_NEW(ARRAY(s->graphs, n_layers), ARRAY(s->met, n_layers));
        if (!s->memory) {
            layer_graphs_free(g);
            return NULL;
        }
    }
    return g;
}

void layer_graphs_free(struct layer_graphs *g)
{
    if (!g)
        return;
    for (unsigned i = 0; i < SHAPES; i++) {
        struct shape *s = &g->shapes[i];
        if (s->memory)
            forget(g, s);
        free(s->memory);
    }
    free(g);
}

uint32_t layer_graphs_positions(uint32_t n, uint32_t most)
{
    uint32_t positions = LAYER_GRAPHS_POSITIONS;
    while (positions < n && positions < most)
        positions = positions <= UINT32_MAX / 2 ? 2 * positions : UINT32_MAX;
    return positions < most ? positions : most;
}

/* The shape, which replaces the least recently used one if it is new. */
static struct shape *find(struct layer_graphs *g, uint32_t n, uint32_t positions)
{
    struct shape *oldest = &g->shapes[0];
    for (unsigned i = 0; i < SHAPES; i++) {
        struct shape *s = &g->shapes[i];
        if (s->n == n && s->positions == positions)
            return s;
        if (s->used < oldest->used)
            oldest = s;
    }
    forget(g, oldest);
    oldest->n = n;
    oldest->positions = positions;
    return oldest;
}

bool layer_graphs_again(struct layer_graphs *g, uint32_t layer, uint32_t n, uint32_t positions)
{
    struct shape *s = find(g, n, positions);
    s->used = ++g->uses;
    if (s->graphs[layer]) {
        g->module->graph_launch(g->stream, s->graphs[layer]);
        return true;
    }
    if (s->met[layer] && !g->off) {
        g->kept = &s->graphs[layer];
        g->module->graph_begin(g->stream);
    }
    s->met[layer] = true;
    return false;
}

bool layer_graphs_keep(struct layer_graphs *g)
{
    struct error e;
    struct device_graph **kept = g->kept;
    g->kept = NULL;
    if (!kept)
        return true;
    if (!g->module->graph_end(g->stream, kept, &e)) {
        g->module->graph_launch(g->stream, *kept);
        return true;
    }
    *kept = NULL;
    g->off = true;
    log_warn("no more layers are kept as CUDA graphs: %s", e.text);
    return false;
}
