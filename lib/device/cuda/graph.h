/* Graphs of a stream's operations, and the guard; the functions of struct device_module of the same
 * names. */
#ifndef MOED_DEVICE_CUDA_GRAPH_H
#define MOED_DEVICE_CUDA_GRAPH_H

#include "stream.h"

void cuda_guard(struct device_stream *s, const uint32_t *stop);
void cuda_graph_begin(struct device_stream *s);
enum error_code cuda_graph_end(struct device_stream *s, struct device_graph **out, struct error *e);
void cuda_graph_launch(struct device_stream *s, struct device_graph *g);
void cuda_graph_free(struct device_graph *g); /* takes NULL */

#endif
