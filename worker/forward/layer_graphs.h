/* Layers kept as graphs of the device (module.h), so that one call queues a layer of a small batch,
 * or several layers in a row.
 *
 * There is a graph for each layer and key. The reach of positions is rounded up
 * (layer_graphs_positions), so that a request seldom needs new graphs. A layer is kept the second
 * time that it is met with a key. Of the keys, those that were used last are kept.
 *
 * Threads: only the engine's. */
#ifndef MOED_WORKER_FORWARD_LAYER_GRAPHS_H
#define MOED_WORKER_FORWARD_LAYER_GRAPHS_H

#include "dense.h"
#include "device/module.h"

struct layer_graphs;

struct layer_graphs_key {
    enum dense_graph kind;
    uint32_t n, positions; /* rows, and their reach */
};

/* Borrows module and stream. NULL: no memory. */
struct layer_graphs *layer_graphs_new(const struct device_module *module,
                                      struct device_stream *stream, uint32_t n_layers);
void layer_graphs_free(struct layer_graphs *g); /* takes NULL; no launch is under way */

/* The reach for n positions: a power of two, at least LAYER_GRAPHS_POSITIONS, at least n; at most
 * `most`. */
enum { LAYER_GRAPHS_POSITIONS = 256 };
uint32_t layer_graphs_positions(uint32_t n, uint32_t most);

/* As dense_ops.again and keep. Of the layers several of which are one graph there is one such graph
 * for a key; the graphs of the single layers are freed then. n and positions stay the same until
 * the next wait for the stream. If the device has no memory for a graph, no further graphs are
 * made. */
bool layer_graphs_again(struct layer_graphs *g, struct layer_graphs_key key, uint32_t layer,
                        uint32_t n_layers);
bool layer_graphs_keep(struct layer_graphs *g);

#endif
