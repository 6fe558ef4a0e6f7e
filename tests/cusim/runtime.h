/* cusim: what its files share.
 *
 * One mutex (state_lock) guards everything here but the operations themselves, which run without it, one at a time.
 * None of them calls the runtime: what tries gets cudaErrorNotPermitted. */
#ifndef CUSIM_RUNTIME_H
#define CUSIM_RUNTIME_H

#include "include/cuda_runtime.h"

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

/* ---- errors and settings (error.cpp) ---- */

/* First in every call of the runtime: cudaSuccess, or why the call of that name fails (no device, an old driver, a lost
 * device, MOED_CUSIM_FAIL), remembered for cudaGetLastError. */
cudaError_t call_begin(const char *name);
/* Remember it as the thread's last error unless it is success; returns it. */
cudaError_t call_end(cudaError_t result);
/* Does MOED_CUSIM_FAIL name this event now? The error it asks for, or cudaSuccess. Each question counts. */
cudaError_t injected_failure(const char *name, cudaError_t otherwise);
/* The device is lost: every call fails with this from now on. The first stands. */
void device_lost(cudaError_t error);
cudaError_t device_error();

#define CALL(name)                                                                                                     \
    do {                                                                                                               \
        cudaError_t begin_ = call_begin(name);                                                                         \
        if (begin_ != cudaSuccess)                                                                                     \
            return begin_;                                                                                             \
    } while (0)

/* An environment variable as a number with K, M or G (powers of 1024). */
unsigned long long setting(const char *name, unsigned long long otherwise);
int current_device();
int device_count();

/* ---- memory (memory.cpp) ---- */

enum memory_kind { MEMORY_PAGEABLE, MEMORY_PINNED, MEMORY_DEVICE, MEMORY_INVALID };
/* Where a range lies; MEMORY_INVALID: partly. Takes the lock. */
enum memory_kind memory_kind_of(const void *memory, size_t bytes);
/* For a message on a bad access; false: it has nothing to do with the device. Async-signal-safe enough for a process
 * that is about to die. */
bool memory_describe(const void *address, char *text, size_t bytes);
/* With the lock: device memory can or, if MOED_CUSIM_PROTECT asks for it, cannot be accessed from now on. */
void memory_protect(bool on);

/* ---- streams (stream.cpp) ---- */

struct operation;

/* In a stream: so many operations are done. */
typedef std::pair<std::shared_ptr<struct CUstream_st>, unsigned long long> point;

struct operation {
    std::string name; /* for messages */
    std::function<cudaError_t()> run;
    std::vector<point> after; /* beyond the stream's own order */
    std::function<bool()> ready; /* may be empty; asked again and again, with the lock */
};

struct graph_content {
    std::vector<operation> operations; /* in an order that respects all dependencies */
};

struct CUstream_st {
    bool blocking; /* with the default stream */
    int device, priority;
    std::deque<operation> queue;
    unsigned long long n_enqueued, n_done;
    unsigned long long due_ns; /* the first of the queue runs then at the earliest, unless somebody waits */
    unsigned favour;           /* of the streams that can run, the one with the most does */
    std::shared_ptr<graph_content> capture; /* being recorded */
    bool capture_origin;
};

extern std::mutex &state_lock;

/* NULL and cudaStreamLegacy are the default stream; empty: no such stream. */
std::shared_ptr<struct CUstream_st> stream_find(cudaStream_t stream);
/* Append to the stream's end, or to its capture. With the lock. The point when it is done. */
point stream_append(const std::shared_ptr<struct CUstream_st> &s, operation o);
/* Until the point is reached; releases the lock meanwhile. The device's error. */
cudaError_t stream_wait_for(std::unique_lock<std::mutex> &lock, const point &p);
cudaError_t stream_wait_for_all(std::unique_lock<std::mutex> &lock);
/* No stream records it any more. */
void stream_leave_capture(std::shared_ptr<graph_content> capture);
/* Find the stream, take the lock, append. */
cudaError_t enqueue(cudaStream_t stream, operation o);
bool in_operation(); /* is this thread doing one? */
unsigned random_number(); /* with the lock */
unsigned long long now_ns();

#endif
