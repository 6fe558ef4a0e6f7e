/* Errors: each thread's last error, the device's first error, and the errors that MOED_CUSIM_FAIL
 * requests. */
#include "runtime.h"

#include <atomic>
#include <map>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

namespace
{
struct failure {
    std::string name;
    unsigned long long at;
    cudaError_t error; /* cudaSuccess: the default error of the call */
};

thread_local cudaError_t last_error;
std::atomic<int> lost; /* cudaError_t */
std::atomic<bool> forked;
bool eager; /* set before any call returns */
/* Never destroyed: threads may call until the process ends. */
std::mutex &failures_lock = *new std::mutex;
std::vector<failure> &failures = *new std::vector<failure>;
std::map<std::string, unsigned long long> &counts = *new std::map<std::string, unsigned long long>;

cudaError_t error_of(const std::string &text)
{
    if (text == "hang" || text == "skip")
        return text == "hang" ? FAILURE_HANG : FAILURE_SKIP;
#define X(name, value, meaning)                                                                    \
    if (text == "cuda" #name)                                                                      \
        return cuda##name;
    CUSIM_ERRORS(X)
#undef X
    return (cudaError_t)strtol(text.c_str(), nullptr, 10);
}

/* CALL:N[:ERROR][,...] */
void parse_failures(const char *text)
{
    std::string all = text;
    for (size_t from = 0; from < all.size();) {
        size_t end = all.find(',', from);
        end = end == std::string::npos ? all.size() : end;
        std::string one = all.substr(from, end - from);
        size_t first = one.find(':'),
               second = first == std::string::npos ? first : one.find(':', first + 1);
        failure f = {one.substr(0, first),
                     first == std::string::npos ? 0 : strtoull(&one[first + 1], nullptr, 10),
                     second == std::string::npos ? cudaSuccess : error_of(one.substr(second + 1))};
        if (f.at == 0) {
            fprintf(stderr, "cusim: MOED_CUSIM_FAIL=%s: expected CALL:N[:ERROR][,...]\n", text);
            abort();
        }
        failures.push_back(f);
        from = end + 1;
    }
}

void begin_process()
{
    const char *loading = getenv("CUDA_MODULE_LOADING");
    eager = loading != nullptr && strcmp(loading, "EAGER") == 0;
    pthread_atfork(nullptr, nullptr, [] { forked = true; });
    const char *text = getenv("MOED_CUSIM_FAIL");
    if (text != nullptr)
        parse_failures(text);
}

cudaError_t listed_failure(const char *name, cudaError_t otherwise)
{
    std::lock_guard<std::mutex> guard(failures_lock);
    unsigned long long n = ++counts[name];
    for (const failure &f : failures)
        if (f.name == name && f.at == n)
            return f.error != cudaSuccess ? f.error : otherwise;
    return cudaSuccess;
}

cudaError_t own_error(const char *name)
{
    static const char *const allocations[] = {"cudaMalloc", "cudaMallocHost", "cudaHostAlloc",
                                              "cudaHostRegister"};
    for (const char *a : allocations)
        if (strcmp(a, name) == 0)
            return cudaErrorMemoryAllocation;
    return cudaErrorUnknown;
}

/* The reason why no call can succeed. */
cudaError_t environment_error()
{
    if (forked)
        return cudaErrorInitializationError;
    if (setting("MOED_CUSIM_DRIVER", CUDART_VERSION) / 1000 < CUDART_VERSION / 1000)
        return cudaErrorInsufficientDriver;
    return device_count() == 0 ? cudaErrorNoDevice : cudaSuccess;
}
} // namespace

cudaError_t injected_failure(const char *name, cudaError_t otherwise)
{
    static std::once_flag once;
    std::call_once(once, begin_process);
    if (failures.empty())
        return cudaSuccess;
    cudaError_t error = listed_failure(name, otherwise);
    while (error == FAILURE_HANG)
        pause();
    return error;
}

bool loading_is_eager()
{
    return eager;
}

cudaError_t call_begin(const char *name)
{
    cudaError_t injected = injected_failure(name, own_error(name));
    if (injected != cudaSuccess)
        return call_end(injected);
    cudaError_t error = environment_error();
    if (error == cudaSuccess && in_operation())
        error = cudaErrorNotPermitted;
    return call_end(error != cudaSuccess ? error : device_error());
}

cudaError_t call_end(cudaError_t result)
{
    if (result != cudaSuccess)
        last_error = result;
    return result;
}

void device_lost(cudaError_t error)
{
    int none = cudaSuccess;
    lost.compare_exchange_strong(none, error);
}

cudaError_t device_error()
{
    return (cudaError_t)lost.load();
}

unsigned long long setting(const char *name, unsigned long long otherwise)
{
    const char *text = getenv(name);
    char *end;
    if (text == nullptr || *text == 0)
        return otherwise;
    unsigned long long value = strtoull(text, &end, 10);
    const char *units = "KMG", *unit = *end == 0 ? nullptr : strchr(units, *end);
    if (unit != nullptr)
        value <<= 10 * (unit - units + 1);
    return value;
}

extern "C" {
cudaError_t cudaGetLastError(void)
{
    cudaError_t result = cudaPeekAtLastError();
    last_error = cudaSuccess;
    return result;
}

cudaError_t cudaPeekAtLastError(void)
{
    return device_error() != cudaSuccess ? device_error() : last_error;
}

const char *cudaGetErrorName(cudaError_t error)
{
    switch (error) {
#define X(name, value, text)                                                                       \
    case cuda##name:                                                                               \
        return "cuda" #name;
        CUSIM_ERRORS(X)
#undef X
    }
    return "unrecognized error code";
}

const char *cudaGetErrorString(cudaError_t error)
{
    switch (error) {
#define X(name, value, text)                                                                       \
    case cuda##name:                                                                               \
        return text;
        CUSIM_ERRORS(X)
#undef X
    }
    return "unrecognized error code";
}
}
