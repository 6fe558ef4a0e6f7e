/* Events; see event.h. */
#include "event.h"

#include <stdlib.h>

struct device_event {
    struct device *device;
    cudaEvent_t cuda;
};

enum error_code cuda_event_new(struct device *d, struct device_event **out, struct error *e)
{
    struct device_event *v = calloc(1, sizeof *v);
    if (!v)
        return error_set(e, ERROR_MEMORY, "no memory for an event");
    v->device = d;
    enum error_code failed = cuda_try_enter(d, e);
    /* a waiting thread sleeps: memd's copy thread waits most of the time */
    unsigned flags = cudaEventDisableTiming | cudaEventBlockingSync;
    cudaError_t code = failed ? cudaSuccess : cudaEventCreateWithFlags(&v->cuda, flags);
    if (code != cudaSuccess)
        failed = CUDA_EXPLAIN(e, code, "cudaEventCreateWithFlags");
    if (failed) {
        free(v);
        return failed;
    }
    *out = v;
    return ERROR_OK;
}

void cuda_event_free(struct device_event *v)
{
    if (v && cuda_enter(v->device))
        cuda_try(v->device, cudaEventDestroy(v->cuda));
    free(v);
}

void cuda_event_record(struct device_event *v, struct device_stream *s)
{
    if (cuda_enter(s->device))
        cuda_try(s->device, cudaEventRecord(v->cuda, s->cuda));
}

void cuda_stream_wait(struct device_stream *s, struct device_event *v)
{
    if (cuda_enter(s->device))
        cuda_try(s->device, cudaStreamWaitEvent(s->cuda, v->cuda, 0));
}

enum error_code cuda_event_query(struct device_event *v, bool *done, struct error *e)
{
    cudaError_t code = cuda_enter(v->device) ? cudaEventQuery(v->cuda) : cudaSuccess;
    bool is_done = code == cudaSuccess;
    if (code == cudaErrorNotReady)
        cudaGetLastError(); /* "not ready" is no error */
    else
        cuda_remember(v->device, code, "cudaEventQuery", __FILE__, __LINE__);
    enum error_code failed = cuda_first_error(v->device, e);
    if (!failed)
        *done = is_done;
    return failed;
}

enum error_code cuda_event_wait(struct device_event *v, struct error *e)
{
    if (cuda_enter(v->device))
        cuda_try(v->device, cudaEventSynchronize(v->cuda));
    return cuda_first_error(v->device, e);
}
