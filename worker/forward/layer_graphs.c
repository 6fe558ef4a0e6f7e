/* Graphs of layers; see layer_graphs.h. */
#include "layer_graphs.h"

#include "base/log.h"

#include <stdlib.h>
#include <string.h>

/* Enough for batches of a few sizes, of both kinds, each at its reach and at the next one. Each
 * shape takes device memory that no plan includes: some kilobytes an operation. */
enum { SHAPES = 12 };

struct kept {
    struct device_graph *graph; /* NULL: none yet */
    bool met;
};

struct shape {
    struct layer_graphs_key key; /* n 0: free */
    uint64_t used;
    struct kept *layers; /* [n_layers]; owned */
    struct kept run;     /* layers [run_first, run_first + run_layers) */
    uint32_t run_first, run_layers;
};

struct layer_graphs {
    const struct device_module *module;
    struct device_stream *stream;
    uint32_t n_layers;
    uint64_t uses;
    struct shape shapes[SHAPES];
    struct kept *captured; /* whose graph is being captured; NULL: none */
    bool off;              /* no more graphs: one failed, or MOED_DEVICE_GRAPHS=0 */
};

static void forget(struct layer_graphs *g, struct kept *k)
{
    g->module->graph_free(k->graph);
    *k = (struct kept){NULL, false};
}

static void forget_shape(struct layer_graphs *g, struct shape *s)
{
    for (uint32_t i = 0; i < g->n_layers; i++)
        forget(g, &s->layers[i]);
    forget(g, &s->run);
    s->run_layers = 0;
    s->key.n = 0;
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
        g->shapes[i].layers = calloc(n_layers, sizeof *g->shapes[i].layers);
        if (!g->shapes[i].layers) {
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
        if (s->layers)
            forget_shape(g, s);
        free(s->layers);
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

static bool same_key(struct layer_graphs_key a, struct layer_graphs_key b)
{
    return a.kind == b.kind && a.n == b.n && a.positions == b.positions;
}

/* The shape, which replaces the least recently used one if it is new. */
static struct shape *find(struct layer_graphs *g, struct layer_graphs_key key)
{
    struct shape *oldest = &g->shapes[0];
    for (unsigned i = 0; i < SHAPES; i++) {
        struct shape *s = &g->shapes[i];
        if (same_key(s->key, key))
            return s;
        if (s->used < oldest->used)
            oldest = s;
    }
    forget_shape(g, oldest);
    oldest->key = key;
    return oldest;
}

/* The graph of several layers replaces those of the single ones. */
static struct kept *find_run(struct layer_graphs *g, struct shape *s, uint32_t layer,
                             uint32_t n_layers)
{
    if (s->run_first != layer || s->run_layers != n_layers) {
        forget(g, &s->run);
        s->run_first = layer;
        s->run_layers = n_layers;
    } else {
        for (uint32_t i = layer; i < layer + n_layers && !s->run.graph; i++)
            forget(g, &s->layers[i]);
    }
    return &s->run;
}

bool layer_graphs_again(struct layer_graphs *g, struct layer_graphs_key key, uint32_t layer,
                        uint32_t n_layers)
{
    struct shape *s = find(g, key);
    struct kept *k = n_layers > 1 ? find_run(g, s, layer, n_layers) : &s->layers[layer];
    s->used = ++g->uses;
    if (k->graph) {
        g->module->graph_launch(g->stream, k->graph);
        return true;
    }
    if (k->met && !g->off) {
        g->captured = k;
        g->module->graph_begin(g->stream);
    }
    k->met = true;
    return false;
}

bool layer_graphs_keep(struct layer_graphs *g)
{
    struct error e;
    struct kept *k = g->captured;
    g->captured = NULL;
    if (!k)
        return true;
    if (!g->module->graph_end(g->stream, &k->graph, &e)) {
        g->module->graph_launch(g->stream, k->graph);
        return true;
    }
    k->graph = NULL;
    g->off = true;
    log_warn("no more layers are kept as CUDA graphs: %s", e.text);
    return false;
}
