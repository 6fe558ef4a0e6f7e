/* Events: points in streams. An event for other processes counts its records in a page of shared
 * memory. */
#include "runtime.h"

#include "ipc.h"

#include <algorithm>
#include <errno.h>
#include <map>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

namespace
{
/* Point of the last record, and when it was done. */
struct record {
    point at;
    unsigned long long time_ns;
};
} // namespace

struct CUevent_st {
    unsigned flags;
    std::shared_ptr<record> last;            /* empty: never recorded */
    std::shared_ptr<graph_content> captured; /* last recorded in a capture */
    struct shared_event *shared;             /* between processes, or NULL */
    struct memory_name name;
    bool imported;
};

namespace
{
std::map<CUevent_st *, std::unique_ptr<CUevent_st>> &events =
    *new std::map<CUevent_st *, std::unique_ptr<CUevent_st>>;

CUevent_st *event_find(cudaEvent_t event)
{
    auto it = events.find(event);
    return it == events.end() ? nullptr : it->second.get();
}

bool done(const point &p)
{
    return p.first->n_done >= p.second;
}

/* True if as many records are done as had been requested at the start, or if no process is left to
 * do them. */
bool shared_done(const struct shared_event *s, unsigned long long target)
{
    return s->n_done.load(std::memory_order_acquire) >= target ||
           (kill(s->pid, 0) != 0 && errno == ESRCH);
}

cudaError_t event_done(const CUevent_st &v, bool *result)
{
    if (v.captured)
        return cudaErrorCapturedEvent;
    *result = v.shared != nullptr
                  ? shared_done(v.shared, v.shared->n_recorded.load(std::memory_order_relaxed))
                  : !v.last || done(v.last->at);
    return cudaSuccess;
}

void raise_to(std::atomic<uint64_t> *counter, uint64_t to)
{
    uint64_t was = counter->load(std::memory_order_relaxed);
    while (was < to && !counter->compare_exchange_weak(was, to, std::memory_order_release)) {
    }
}

/* Marks the record as done when the stream reaches it. */
operation record_operation(CUevent_st *v, const std::shared_ptr<record> &r)
{
    struct shared_event *shared = v->shared;
    uint64_t number =
        shared != nullptr ? shared->n_recorded.fetch_add(1, std::memory_order_relaxed) + 1 : 0;
    return {"an event",
            [=] {
                r->time_ns = now_ns();
                if (shared != nullptr)
                    raise_to(&shared->n_done, number);
                return cudaSuccess;
            },
            {},
            {}};
}

cudaError_t record_event(CUevent_st *v, const std::shared_ptr<CUstream_st> &s)
{
    v->captured = s->capture;
    if (s->capture)
        return cudaSuccess; /* the order of the captured operations includes it */
    std::shared_ptr<record> r = std::make_shared<record>();
    r->time_ns = 0;
    operation o = record_operation(v, r);
    r->at = stream_append(s, std::move(o));
    v->last = r;
    return cudaSuccess;
}

cudaError_t wait_event(const std::shared_ptr<CUstream_st> &s, CUevent_st *v)
{
    if (v->captured) {
        if (s->capture && s->capture != v->captured)
            return cudaErrorStreamCaptureUnmatched;
        s->capture = v->captured; /* joins it */
        return cudaSuccess;
    }
    if (s->capture)
        return cudaErrorStreamCaptureIsolation;
    operation o = {"a wait for an event", {}, {}, {}};
    if (v->shared != nullptr) {
        struct shared_event *shared = v->shared;
        uint64_t target = shared->n_recorded.load(std::memory_order_relaxed);
        o.ready = [=] { return shared_done(shared, target); };
    } else if (v->last) {
        o.after.push_back(v->last->at);
    }
    stream_append(s, std::move(o));
    return cudaSuccess;
}

cudaError_t new_shared_event(CUevent_st *v)
{
    struct memory_name name;
    struct shared_event *shared = ipc_new_page(&name);
    if (shared == nullptr)
        return cudaErrorMemoryAllocation;
    shared->pid = getpid();
    v->shared = shared;
    v->name = name;
    return cudaSuccess;
}
} // namespace

extern "C" {
cudaError_t cudaEventCreate(cudaEvent_t *event)
{
    return cudaEventCreateWithFlags(event, cudaEventDefault);
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags)
{
    CALL("cudaEventCreateWithFlags");
    if (event == nullptr || flags > 7 ||
        ((flags & cudaEventInterprocess) && !(flags & cudaEventDisableTiming)))
        return call_end(cudaErrorInvalidValue);
    std::unique_ptr<CUevent_st> v(new CUevent_st());
    v->flags = flags;
    if (flags & cudaEventInterprocess) {
        cudaError_t error = new_shared_event(v.get());
        if (error != cudaSuccess)
            return call_end(error);
    }
    std::lock_guard<std::mutex> guard(state_lock);
    *event = v.get();
    events[v.get()] = std::move(v);
    return cudaSuccess;
}

/* A record in progress continues; the page of a shared event stays mapped for it. */
cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    CALL("cudaEventDestroy");
    std::lock_guard<std::mutex> guard(state_lock);
    return call_end(events.erase(event) == 1 ? cudaSuccess : cudaErrorInvalidResourceHandle);
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    CALL("cudaEventRecord");
    std::lock_guard<std::mutex> guard(state_lock);
    CUevent_st *v = event_find(event);
    std::shared_ptr<CUstream_st> s = stream_find(stream);
    return call_end(v == nullptr || !s ? cudaErrorInvalidResourceHandle : record_event(v, s));
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags)
{
    CALL("cudaStreamWaitEvent");
    if (flags != 0)
        return call_end(cudaErrorInvalidValue);
    std::lock_guard<std::mutex> guard(state_lock);
    CUevent_st *v = event_find(event);
    std::shared_ptr<CUstream_st> s = stream_find(stream);
    return call_end(v == nullptr || !s ? cudaErrorInvalidResourceHandle : wait_event(s, v));
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    CALL("cudaEventQuery");
    std::lock_guard<std::mutex> guard(state_lock);
    CUevent_st *v = event_find(event);
    bool is_done = false;
    cudaError_t error = v == nullptr ? cudaErrorInvalidResourceHandle : event_done(*v, &is_done);
    return call_end(error != cudaSuccess ? error : is_done ? cudaSuccess : cudaErrorNotReady);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    CALL("cudaEventSynchronize");
    std::unique_lock<std::mutex> lock(state_lock);
    CUevent_st *v = event_find(event);
    if (v == nullptr)
        return call_end(cudaErrorInvalidResourceHandle);
    if (v->captured)
        return call_end(cudaErrorCapturedEvent);
    if (v->last && !v->imported)
        return call_end(stream_wait_for(lock, v->last->at));
    if (v->shared == nullptr)
        return cudaSuccess;
    struct shared_event *shared = v->shared;
    uint64_t target = shared->n_recorded.load(std::memory_order_relaxed);
    lock.unlock();
    while (!shared_done(shared, target))
        usleep(50);
    return call_end(device_error());
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t end)
{
    CALL("cudaEventElapsedTime");
    std::lock_guard<std::mutex> guard(state_lock);
    CUevent_st *a = event_find(start), *b = event_find(end);
    if (ms == nullptr)
        return call_end(cudaErrorInvalidValue);
    if (a == nullptr || b == nullptr || !a->last || !b->last ||
        ((a->flags | b->flags) & cudaEventDisableTiming))
        return call_end(cudaErrorInvalidResourceHandle);
    if (!done(a->last->at) || !done(b->last->at))
        return call_end(cudaErrorNotReady);
    *ms = (float)((double)b->last->time_ns - (double)a->last->time_ns) * 1e-6f;
    return cudaSuccess;
}

cudaError_t cudaIpcGetEventHandle(cudaIpcEventHandle_t *handle, cudaEvent_t event)
{
    CALL("cudaIpcGetEventHandle");
    std::lock_guard<std::mutex> guard(state_lock);
    CUevent_st *v = event_find(event);
    if (handle == nullptr || v == nullptr)
        return call_end(cudaErrorInvalidResourceHandle);
    if (v->shared == nullptr || v->imported)
        return call_end(cudaErrorInvalidValue);
    *handle = {};
    memcpy(handle, &v->name, sizeof v->name);
    return cudaSuccess;
}

cudaError_t cudaIpcOpenEventHandle(cudaEvent_t *event, cudaIpcEventHandle_t handle)
{
    CALL("cudaIpcOpenEventHandle");
    struct memory_name name;
    memcpy(&name, &handle, sizeof name);
    if (event == nullptr)
        return call_end(cudaErrorInvalidValue);
    std::unique_ptr<CUevent_st> v(new CUevent_st());
    v->flags = cudaEventDisableTiming | cudaEventInterprocess;
    v->imported = true;
    cudaError_t error = ipc_open_page(name, &v->shared);
    if (error != cudaSuccess)
        return call_end(error);
    std::lock_guard<std::mutex> guard(state_lock);
    *event = v.get();
    events[v.get()] = std::move(v);
    return cudaSuccess;
}
}
