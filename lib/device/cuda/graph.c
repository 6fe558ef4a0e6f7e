/* Graphs; see graph.h. */
#include "graph.h"

#include <stdlib.h>

struct device_graph {
    struct device *device;
    cudaGraphExec_t cuda;
};

void cuda_guard(struct device_stream *s, const uint32_t *stop)
{
    s->guard = stop;
}

void cuda_graph_begin(struct device_stream *s)
{
    /* thread-local: during the capture other threads of this process may allocate, which this one
     * may not */
    if (cuda_enter(s->device))
        s->captured =
            cuda_try(s->device, cudaStreamBeginCapture(s->cuda, cudaStreamCaptureModeThreadLocal));
}

void cuda_graph_free(struct device_graph *g)
{
    if (g && g->cuda && cuda_enter(g->device))
        cuda_try(g->device, cudaGraphExecDestroy(g->cuda));
    free(g);
}

/* ERROR_MEMORY is no failure of the device: the caller goes on without the graph. The device keeps
 * any other error. */
static enum error_code check(struct device_graph *g, cudaError_t code, const char *what,
                             struct error *e)
{
    if (code == cudaErrorMemoryAllocation) {
        cudaGetLastError();
        return CUDA_EXPLAIN(e, code, what);
    }
    cuda_remember(g->device, code, what, __FILE__, __LINE__);
    return cuda_first_error(g->device, e);
}

/* Uploads the graph too, so launching it takes no more memory. */
static enum error_code instantiate(struct device_stream *s, cudaGraph_t captured,
                                   struct device_graph *g, struct error *e)
{
    enum error_code code = check(g, cudaGraphInstantiateWithFlags(&g->cuda, captured, 0),
                                 "cudaGraphInstantiateWithFlags", e);
    return code ? code : check(g, cudaGraphUpload(g->cuda, s->cuda), "cudaGraphUpload", e);
}

enum error_code cuda_graph_end(struct device_stream *s, struct device_graph **out, struct error *e)
{
    cudaGraph_t captured = NULL;
    struct device_graph *g = calloc(1, sizeof *g);
    if (s->captured && cuda_enter(s->device))
        cuda_try(s->device, cudaStreamEndCapture(s->cuda, &captured));
    s->captured = false;
    enum error_code code =
        g ? cuda_first_error(s->device, e) : error_set(e, ERROR_MEMORY, "no memory for a graph");
    if (g)
        g->device = s->device;
    if (!code)
        code = instantiate(s, captured, g, e);
    if (captured)
        cuda_try(s->device, cudaGraphDestroy(captured));
    if (code) {
        cuda_graph_free(g);
        return code;
    }
    *out = g;
    return ERROR_OK;
}

void cuda_graph_launch(struct device_stream *s, struct device_graph *g)
{
    if (cuda_enter(s->device))
        cuda_try(s->device, cudaGraphLaunch(g->cuda, s->cuda));
}
