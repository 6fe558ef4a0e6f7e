/* Graphs: the operations that were queued while streams were captured, replayed as one operation in
 * the order of capture (which satisfies every dependency). */
#include "runtime.h"

#include <stdio.h>
#include <stdlib.h>

struct CUgraph_st {
    std::shared_ptr<graph_content> content;
};

struct CUgraphExec_st {
    std::shared_ptr<const graph_content> content;
};

namespace
{
cudaError_t replay(const graph_content &g)
{
    for (const operation &o : g.operations) {
        cudaError_t error = o.run ? o.run() : cudaSuccess;
        if (error != cudaSuccess)
            return error;
    }
    return cudaSuccess;
}

/* Appends a line to the file that MOED_CUSIM_GRAPHS names: the number of nodes, and each one's
 * name. */
void note(const graph_content &g)
{
    const char *path = getenv("MOED_CUSIM_GRAPHS");
    FILE *file = path != nullptr && *path != 0 ? fopen(path, "a") : nullptr;
    if (file == nullptr)
        return;
    std::string line = std::to_string(g.operations.size()) + " nodes:";
    for (const operation &o : g.operations)
        line += " " + o.name;
    fprintf(file, "%s\n", line.c_str());
    fclose(file);
}
} // namespace

extern "C" {
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode)
{
    CALL("cudaStreamBeginCapture");
    (void)mode;
    std::lock_guard<std::mutex> guard(state_lock);
    std::shared_ptr<CUstream_st> s = stream_find(stream);
    if (!s)
        return call_end(cudaErrorInvalidResourceHandle);
    if (stream == nullptr || stream == cudaStreamLegacy)
        return call_end(cudaErrorStreamCaptureUnsupported);
    if (s->capture)
        return call_end(cudaErrorIllegalState);
    s->capture = std::make_shared<graph_content>();
    s->capture_origin = true;
    return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph)
{
    CALL("cudaStreamEndCapture");
    std::lock_guard<std::mutex> guard(state_lock);
    std::shared_ptr<CUstream_st> s = stream_find(stream);
    if (!s)
        return call_end(cudaErrorInvalidResourceHandle);
    if (!s->capture || !s->capture_origin || graph == nullptr)
        return call_end(cudaErrorIllegalState);
    *graph = new CUgraph_st{s->capture};
    stream_leave_capture(s->capture);
    return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *status)
{
    CALL("cudaStreamIsCapturing");
    std::lock_guard<std::mutex> guard(state_lock);
    std::shared_ptr<CUstream_st> s = stream_find(stream);
    if (!s)
        return call_end(cudaErrorInvalidResourceHandle);
    *status = s->capture ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
    return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long flags)
{
    CALL("cudaGraphInstantiate");
    if (exec == nullptr || graph == nullptr || flags != 0)
        return call_end(cudaErrorInvalidValue);
    note(*graph->content);
    *exec = new CUgraphExec_st{graph->content};
    return cudaSuccess;
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *exec, cudaGraph_t graph,
                                          unsigned long long flags)
{
    return cudaGraphInstantiate(exec, graph, flags);
}

/* Upload has no effect. */
cudaError_t cudaGraphUpload(cudaGraphExec_t exec, cudaStream_t stream)
{
    CALL("cudaGraphUpload");
    std::lock_guard<std::mutex> guard(state_lock);
    return call_end(exec == nullptr       ? cudaErrorInvalidValue
                    : stream_find(stream) ? cudaSuccess
                                          : cudaErrorInvalidResourceHandle);
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream)
{
    CALL("cudaGraphLaunch");
    if (exec == nullptr)
        return call_end(cudaErrorInvalidValue);
    std::shared_ptr<const graph_content> content = exec->content;
    return call_end(enqueue(stream, {"a graph", [=] { return replay(*content); }, {}, {}}));
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
    CALL("cudaGraphExecDestroy");
    delete exec;
    return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    CALL("cudaGraphDestroy");
    delete graph;
    return cudaSuccess;
}
}
