/* cusim: declarations that its files share.
 *
 * One mutex (state_lock) guards everything here. Only the operations themselves run without it, one
 * at a time. An operation that calls the runtime gets cudaErrorNotPermitted. */
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

/* First in every call of the runtime. Returns cudaSuccess, or the error of a call of that name (no
 * device, an old driver, a lost device, MOED_CUSIM_FAIL), and stores it for cudaGetLastError. */
cudaError_t call_begin(const char *name);
/* Stores the error as the thread's last one unless it is success; returns it. */
cudaError_t call_end(cudaError_t result);
/* What MOED_CUSIM_FAIL knows beside errors: an event that never ends, a kernel that does nothing.
 * The values are within the range of the enumeration's type and name no error of CUDA. */
const cudaError_t FAILURE_HANG = (cudaError_t)1022, FAILURE_SKIP = (cudaError_t)1023;
/* Returns the error that MOED_CUSIM_FAIL sets for this event now, or cudaSuccess. Each call
 * counts. Does not return from FAILURE_HANG. */
cudaError_t injected_failure(const char *name, cudaError_t otherwise);
/* True if CUDA_MODULE_LOADING was EAGER at the process's first call: all kernels are loaded. */
bool loading_is_eager();
/* Marks the device as lost: every call fails with this error from now on. The first error stays. */
void device_lost(cudaError_t error);
cudaError_t device_error();

#define CALL(name)                                                                                 \
    do {                                                                                           \
        cudaError_t begin_ = call_begin(name);                                                     \
        if (begin_ != cudaSuccess)                                                                 \
            return begin_;                                                                         \
    } while (0)

/* An environment variable as a number with K, M or G (powers of 1024). */
unsigned long long setting(const char *name, unsigned long long otherwise);
int current_device();
int device_count();
int device_capability(); /* as 80 for 8.0 */
bool pins_read_only();   /* cudaHostRegister takes cudaHostRegisterReadOnly */

/* ---- memory (memory.cpp) ---- */

enum memory_kind { MEMORY_PAGEABLE, MEMORY_PINNED, MEMORY_DEVICE, MEMORY_INVALID };
/* Returns the kind of a range; MEMORY_INVALID: it lies only partly in one. Takes the lock. */
enum memory_kind memory_kind_of(const void *memory, size_t bytes);
/* Describes a bad access; false: it is unrelated to the device. Async-signal-safe enough for a
 * process that is about to die. */
bool memory_describe(const void *address, char *text, size_t bytes);
/* With the lock: makes device memory accessible or, if MOED_CUSIM_PROTECT is set, inaccessible. */
void memory_protect(bool on);

/* ---- launches (launch.cpp) ---- */

/* A stream waits for a flag: from now on no kernel may be loaded by its launch. */
void launch_flags_are_used();

/* ---- streams (stream.cpp) ---- */

struct operation;

/* A point of a stream: the number of its operations that are done. */
typedef std::pair<std::shared_ptr<struct CUstream_st>, unsigned long long> point;

struct operation {
    std::string name; /* for messages */
    std::function<cudaError_t()> run;
    std::vector<point> after;    /* in addition to the stream's own order */
    std::function<bool()> ready; /* may be empty; called repeatedly, with the lock */
};

struct graph_content {
    std::vector<operation> operations; /* in an order that respects all dependencies */
};

struct CUstream_st {
    bool blocking; /* with the default stream */
    int device, priority;
    std::deque<operation> queue;
    unsigned long long n_enqueued, n_done;
    unsigned long long due_ns; /* earliest time of the first operation, unless a thread waits */
    unsigned favour; /* of the streams that can run, the one with the largest favour runs */
    std::shared_ptr<graph_content> capture; /* the capture that records the stream */
    bool capture_origin;
};

extern std::mutex &state_lock;

/* NULL and cudaStreamLegacy are the default stream; empty: no such stream. */
std::shared_ptr<struct CUstream_st> stream_find(cudaStream_t stream);
/* Appends to the stream's end, or to its capture. With the lock. Returns the point at which it is
 * done. */
point stream_append(const std::shared_ptr<struct CUstream_st> &s, operation o);
/* Waits until the point is reached; releases the lock during the wait. Returns the device's
 * error. */
cudaError_t stream_wait_for(std::unique_lock<std::mutex> &lock, const point &p);
cudaError_t stream_wait_for_all(std::unique_lock<std::mutex> &lock);
/* Removes the capture from all streams. */
void stream_leave_capture(std::shared_ptr<graph_content> capture);
/* Finds the stream, takes the lock, appends. */
cudaError_t enqueue(cudaStream_t stream, operation o);
bool in_operation();      /* true if this thread runs an operation */
unsigned random_number(); /* with the lock */
unsigned long long now_ns();

#endif
