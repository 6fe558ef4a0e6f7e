/* The operations of layers, kept as graphs of the device (module.h): so a layer of a small batch is queued in one call.
 * There is a graph for each layer, number of rows and reach of positions; the reach is rounded up
 * (layer_graphs_positions), so that a request needs other graphs seldom. Kept the second time that a layer is met in a
 * shape; the shapes that were used last stay. The engine's thread. */
#ifndef MOED_WORKER_LAYER_GRAPHS_H
#define MOED_WORKER_LAYER_GRAPHS_H

#include "device/module.h"

struct layer_graphs;

/* Borrows module and stream. NULL: no memory. */
struct layer_graphs *layer_graphs_new(const struct device_module *module, struct device_stream *stream,
                                      uint32_t n_layers);
void layer_graphs_free(struct layer_graphs *g); /* takes NULL; nothing is under way */

/* A power of two, at least LAYER_GRAPHS_POSITIONS and n; or most, where that is less. */
enum { LAYER_GRAPHS_POSITIONS = 256 };
uint32_t layer_graphs_positions(uint32_t n, uint32_t most);

/* As dense_ops.again and keep. Between two ends of the stream: n and positions are the same. Where the device has no memory
 * for a graph there are no more of them. */
bool layer_graphs_again(struct layer_graphs *g, uint32_t layer, uint32_t n, uint32_t positions);
bool layer_graphs_keep(struct layer_graphs *g);

#endif
