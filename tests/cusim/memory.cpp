/* The device's memory, and the table of registered host memory.
 *
 * The device's memory is one file without a name. An allocation is a range of the file, mapped at
 * an address that was never used before, with an unreadable page behind it. Freed memory is filled
 * with 0xff and cannot be read either. No range of the file is used twice, because other processes
 * may have it mapped.
 *
 * With MOED_CUSIM_PROTECT device memory is accessible only while an operation runs or is queued. So
 * host code that reads or writes it faults, as on a machine with a device. */
#include "runtime.h"

#include "limits.h"
#include "memory.h"
#include "usage.h"

#include <chrono>
#include <thread>
#include <errno.h>
#include <fcntl.h>
#include <map>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#else
#define __asan_poison_memory_region(memory, bytes)   ((void)(memory), (void)(bytes))
#define __asan_unpoison_memory_region(memory, bytes) ((void)(memory), (void)(bytes))
#endif

namespace
{
enum { PAGE = 4096 };
const size_t POISON_BYTES =
    (size_t)256 << 20; /* the most bytes that are filled; the rest reads as 0 until it is written */

struct pinned {
    size_t bytes;
    unsigned flags;
    bool registered; /* registered host memory, not allocated by cusim */
};

std::map<uintptr_t, allocation> &allocations = *new std::map<uintptr_t, allocation>;
std::map<uintptr_t, pinned> &pinneds = *new std::map<uintptr_t, pinned>;
std::map<uintptr_t, size_t> &freed = *new std::map<uintptr_t, size_t>; /* for messages */
int file = -1;
off_t file_end;
bool accessible = true; /* of all allocations at this moment */

size_t round_up(size_t n, size_t to)
{
    return (n + to - 1) / to * to;
}

bool protects()
{
    static const bool yes = setting("MOED_CUSIM_PROTECT", 0) != 0;
    return yes;
}

void set_access(void *memory, size_t bytes, bool on)
{
    char *place = (char *)((uintptr_t)memory & ~(uintptr_t)(PAGE - 1));
    if (protects() &&
        mprotect(place, round_up(bytes, PAGE), on ? PROT_READ | PROT_WRITE : PROT_NONE) != 0)
        abort();
}

void poison(void *memory, size_t bytes)
{
    memset(memory, 0xff, bytes < POISON_BYTES ? bytes : POISON_BYTES);
}

template <class M> typename M::iterator containing(M &map, uintptr_t address)
{
    auto it = map.upper_bound(address);
    return it == map.begin() ? map.end() : --it;
}

const allocation *allocation_at(uintptr_t address)
{
    auto it = containing(allocations, address);
    return it != allocations.end() && address < it->first + it->second.bytes ? &it->second
                                                                             : nullptr;
}

const pinned *pinned_at(uintptr_t address, uintptr_t *base)
{
    auto it = containing(pinneds, address);
    if (it == pinneds.end() || address >= it->first + it->second.bytes)
        return nullptr;
    *base = it->first;
    return &it->second;
}

bool open_file()
{
    if (file < 0)
        file = memfd_create("cusim", MFD_CLOEXEC);
    return file >= 0;
}

/* True if every byte of the range is mapped and writable. Registering without
 * cudaHostRegisterReadOnly requires this. */
bool is_mapped(uintptr_t from, uintptr_t to, bool for_writing)
{
    FILE *maps = fopen("/proc/self/maps", "re");
    char line[512];
    while (maps != nullptr && from < to && fgets(line, sizeof line, maps) != nullptr) {
        unsigned long begin, end;
        char access[8];
        if (sscanf(line, "%lx-%lx %7s", &begin, &end, access) == 3 && begin <= from && from < end) {
            if (access[0] != 'r' || (for_writing && access[1] != 'w'))
                break;
            from = end;
        }
    }
    if (maps != nullptr)
        fclose(maps);
    return from >= to;
}

cudaError_t pin_own(void **memory, size_t bytes, unsigned flags)
{
    void *p = mmap(nullptr, round_up(bytes, PAGE), PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return cudaErrorMemoryAllocation;
    poison(p, bytes);
    pinneds[(uintptr_t)p] = {bytes, flags, false};
    *memory = p;
    return cudaSuccess;
}

bool overlaps_pinned(uintptr_t from, uintptr_t to)
{
    auto next = pinneds.lower_bound(from);
    uintptr_t base;
    return pinned_at(from, &base) != nullptr || (next != pinneds.end() && next->first < to);
}

/* True if the source is readable and the destination writable. */
bool direction_fits(enum cudaMemcpyKind kind, enum memory_kind to, enum memory_kind from)
{
    bool to_device = to == MEMORY_DEVICE, from_device = from == MEMORY_DEVICE;
    if (to == MEMORY_INVALID || from == MEMORY_INVALID)
        return false;
    switch (kind) {
    case cudaMemcpyHostToHost:
        return !to_device && !from_device;
    case cudaMemcpyHostToDevice:
        return to_device && !from_device;
    case cudaMemcpyDeviceToHost:
        return !to_device && from_device;
    case cudaMemcpyDeviceToDevice:
        return to_device && from_device;
    case cudaMemcpyDefault:
        return true;
    }
    return false;
}

/* A copy of rows; width == pitch: contiguous. */
struct rows {
    char *to;
    const char *from;
    size_t to_pitch, from_pitch, width, height;
};

/* A copy to the device takes the link's time, if MOED_CUSIM_LINK sets a rate. The bytes arrive at
 * its end. */
void take_time(const rows &r)
{
    static const unsigned long long rate = setting("MOED_CUSIM_LINK", 0);
    if (rate != 0)
        std::this_thread::sleep_for(
            std::chrono::nanoseconds(r.width * r.height * 1000000000ull / rate));
}

void copy_rows(const rows &r)
{
    for (size_t i = 0; i < r.height; i++)
        memcpy(r.to + i * r.to_pitch, r.from + i * r.from_pitch, r.width);
}

size_t extent(size_t pitch, const rows &r)
{
    return r.height == 0 ? 0 : (r.height - 1) * pitch + r.width;
}

/* From pageable memory: the copy takes its present content, and runs later. */
operation staged_copy(const rows &r)
{
    auto stage = std::make_shared<std::vector<char>>(r.width * r.height);
    copy_rows({stage->data(), r.from, r.width, r.from_pitch, r.width, r.height});
    return {"a copy to the device",
            [=] {
                take_time(r);
                copy_rows({r.to, stage->data(), r.to_pitch, r.width, r.width, r.height});
                return cudaSuccess;
            },
            {},
            {}};
}

cudaError_t copy(const rows &r, enum cudaMemcpyKind kind, cudaStream_t stream, bool wait)
{
    if (r.width == 0 || r.height == 0)
        return cudaSuccess;
    if (r.to == nullptr || r.from == nullptr)
        return cudaErrorInvalidValue;
    enum memory_kind to = memory_kind_of(r.to, extent(r.to_pitch, r));
    enum memory_kind from = memory_kind_of(r.from, extent(r.from_pitch, r));
    if (!direction_fits(kind, to, from))
        return cudaErrorInvalidValue;
    std::unique_lock<std::mutex> lock(state_lock);
    std::shared_ptr<CUstream_st> s = stream_find(stream);
    if (!s)
        return cudaErrorInvalidResourceHandle;
    bool recorded = s->capture != nullptr;
    if (recorded && wait)
        return cudaErrorStreamCaptureUnsupported;
    operation o = {"a copy",
                   [=] {
                       if (to == MEMORY_DEVICE && from != MEMORY_DEVICE)
                           take_time(r);
                       copy_rows(r);
                       return cudaSuccess;
                   },
                   {},
                   {}};
    if (from == MEMORY_PAGEABLE && !recorded && !wait)
        o = staged_copy(r);
    point end = stream_append(s, std::move(o));
    /* To pageable memory a copy is done when the call returns. */
    return !recorded && (wait || to == MEMORY_PAGEABLE) ? stream_wait_for(lock, end) : cudaSuccess;
}

cudaError_t fill(void *to, int value, size_t bytes, cudaStream_t stream)
{
    if (bytes == 0)
        return cudaSuccess;
    if (memory_kind_of(to, bytes) != MEMORY_DEVICE)
        return cudaErrorInvalidValue;
    return enqueue(stream, {"a fill",
                            [=] {
                                memset(to, value, bytes);
                                return cudaSuccess;
                            },
                            {},
                            {}});
}
} // namespace

unsigned long long memory_total()
{
    return setting("MOED_CUSIM_MEMORY", 8ull << 30);
}

/* No address is given twice: freed memory stays reserved and unreadable. */
void *memory_map(int fd, off_t offset, size_t bytes)
{
    size_t mapped = round_up(bytes, PAGE);
    char *place = (char *)mmap(nullptr, mapped + PAGE, PROT_NONE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (place == MAP_FAILED)
        return nullptr;
    if (mmap(place, mapped, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE, fd,
             offset) == MAP_FAILED)
        return nullptr;
    /* The last byte lies directly before the unreadable page, except for the alignment. */
    char *memory = place + (mapped - round_up(bytes, MEMORY_ALIGNMENT));
    __asan_poison_memory_region(place, (size_t)(memory - place));
    __asan_poison_memory_region(memory + bytes, (size_t)(place + mapped - memory) - bytes);
    return memory;
}

void memory_unmap(void *memory, size_t bytes)
{
    size_t mapped = round_up(bytes, PAGE);
    char *place = (char *)((uintptr_t)memory & ~(uintptr_t)(PAGE - 1));
    __asan_unpoison_memory_region(place, mapped);
    if (mmap(place, mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1,
             0) == MAP_FAILED)
        abort();
    freed[(uintptr_t)memory] = bytes;
}

struct allocation *memory_find(const void *memory)
{
    auto it = allocations.find((uintptr_t)memory);
    return it == allocations.end() ? nullptr : &it->second;
}

struct allocation *memory_find_if(const std::function<bool(const struct allocation &)> &wanted)
{
    for (auto &entry : allocations)
        if (wanted(entry.second))
            return &entry.second;
    return nullptr;
}

void memory_add(void *memory, const struct allocation &a)
{
    allocations[(uintptr_t)memory] = a;
    if (!accessible)
        set_access(memory, a.bytes, false);
    freed.erase((uintptr_t)memory);
}

void memory_protect(bool on)
{
    if (!protects() || accessible == !on)
        return;
    accessible = !on;
    for (auto &entry : allocations)
        set_access(entry.second.memory, entry.second.bytes, accessible);
}

void memory_remove(void *memory)
{
    allocations.erase((uintptr_t)memory);
}

int memory_file()
{
    return file;
}

void memory_check_freed(int device)
{
    size_t bytes = 0, n = 0, largest = 0;
    for (const auto &entry : allocations) {
        const allocation &a = entry.second;
        if (a.device != device)
            continue;
        n++;
        bytes += a.bytes;
        largest = a.bytes > largest ? a.bytes : largest;
    }
    if (n == 0)
        return;
    fprintf(stderr,
            "cusim: cudaDeviceReset: device memory was not freed: %zu allocations or imports, %zu "
            "bytes, the largest %zu bytes\n",
            n, bytes, largest);
    abort();
}

enum memory_kind memory_kind_of(const void *memory, size_t bytes)
{
    std::lock_guard<std::mutex> guard(state_lock);
    uintptr_t from = (uintptr_t)memory, to = from + bytes, base;
    const allocation *a = allocation_at(from);
    if (a != nullptr)
        return to <= (uintptr_t)a->memory + a->bytes ? MEMORY_DEVICE : MEMORY_INVALID;
    auto was = containing(freed, from);
    if (was != freed.end() && from < was->first + was->second)
        return MEMORY_INVALID;
    const pinned *p = pinned_at(from, &base);
    if (p != nullptr)
        return to <= base + p->bytes ? MEMORY_PINNED : MEMORY_INVALID;
    return MEMORY_PAGEABLE;
}

bool memory_describe(const void *address, char *text, size_t bytes)
{
    uintptr_t at = (uintptr_t)address;
    auto was = containing(freed, at);
    auto live = containing(allocations, at);
    bool is_freed = was != freed.end() && at < was->first + round_up(was->second, PAGE);
    bool is_live =
        live != allocations.end() && at < live->first + round_up(live->second.bytes, PAGE) + PAGE;
    if (is_freed)
        snprintf(text, bytes, "%lu bytes into an allocation of %zu bytes that was freed",
                 at - was->first, was->second);
    else if (is_live)
        snprintf(text, bytes, "%lu bytes into an allocation of %zu bytes", at - live->first,
                 live->second.bytes);
    else
        snprintf(text, bytes, "no allocation of the device");
    return is_freed || is_live;
}

extern "C" {
cudaError_t cudaMalloc(void **memory, size_t bytes)
{
    CALL("cudaMalloc");
    if (memory == nullptr)
        return call_end(cudaErrorInvalidValue);
    *memory = nullptr;
    if (bytes == 0)
        return cudaSuccess;
    std::lock_guard<std::mutex> guard(state_lock);
    size_t mapped = round_up(bytes, PAGE);
    if (bytes > memory_total() || !open_file() || ftruncate(file, file_end + (off_t)mapped) != 0 ||
        !usage_take(current_device(), mapped, memory_total()))
        return call_end(cudaErrorMemoryAllocation);
    off_t offset = file_end;
    void *p = memory_map(file, offset, bytes);
    if (p == nullptr) {
        usage_give(current_device(), mapped);
        return call_end(cudaErrorMemoryAllocation);
    }
    file_end += (off_t)mapped;
    poison(p, bytes);
    memory_add(p, {p, bytes, offset, current_device(), 0, false, {}});
    *memory = p;
    return cudaSuccess;
}

/* Waits for the device, as CUDA's call does. */
cudaError_t cudaFree(void *memory)
{
    CALL("cudaFree");
    std::unique_lock<std::mutex> lock(state_lock);
    if (memory == nullptr)
        return cudaSuccess;
    struct allocation *a = memory_find(memory);
    if (a == nullptr || a->n_opened != 0)
        return call_end(cudaErrorInvalidValue);
    cudaError_t error = stream_wait_for_all(lock);
    a = memory_find(memory);
    if (a == nullptr)
        return call_end(cudaErrorInvalidValue);
    size_t mapped = round_up(a->bytes, PAGE);
    off_t offset = a->offset;
    int device = a->device;
    bool exported = a->exported;
    set_access(memory, a->bytes, true);
    poison(memory, a->bytes);
    memory_unmap(memory, a->bytes);
    memory_remove(memory);
    usage_give(device, mapped);
    if (!exported) /* another process may have it mapped and reads the poison */
        fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset, (off_t)mapped);
    return call_end(error);
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total)
{
    CALL("cudaMemGetInfo");
    if (free_bytes == nullptr || total == nullptr)
        return call_end(cudaErrorInvalidValue);
    std::lock_guard<std::mutex> guard(state_lock);
    *total = (size_t)memory_total();
    *free_bytes = *total - (size_t)usage_of(current_device());
    return cudaSuccess;
}

cudaError_t cudaMallocHost(void **memory, size_t bytes)
{
    return cudaHostAlloc(memory, bytes, cudaHostAllocDefault);
}

cudaError_t cudaHostAlloc(void **memory, size_t bytes, unsigned flags)
{
    CALL("cudaHostAlloc");
    if (memory == nullptr || flags > 7)
        return call_end(cudaErrorInvalidValue);
    *memory = nullptr;
    if (bytes == 0)
        return cudaSuccess;
    std::lock_guard<std::mutex> guard(state_lock);
    return call_end(pin_own(memory, bytes, flags));
}

cudaError_t cudaFreeHost(void *memory)
{
    CALL("cudaFreeHost");
    if (memory == nullptr)
        return cudaSuccess;
    std::unique_lock<std::mutex> lock(state_lock);
    auto it = pinneds.find((uintptr_t)memory);
    if (it == pinneds.end() || it->second.registered)
        return call_end(cudaErrorInvalidValue);
    cudaError_t error = stream_wait_for_all(lock);
    munmap(memory, round_up(it->second.bytes, PAGE));
    pinneds.erase((uintptr_t)memory);
    return call_end(error);
}

cudaError_t cudaHostRegister(void *memory, size_t bytes, unsigned flags)
{
    CALL("cudaHostRegister");
    uintptr_t from = (uintptr_t)memory;
    if (memory == nullptr || bytes == 0 || flags > 15 || (flags & cudaHostRegisterIoMemory))
        return call_end(cudaErrorInvalidValue);
    if ((flags & cudaHostRegisterReadOnly) && !pins_read_only())
        return call_end(cudaErrorNotSupported);
    std::lock_guard<std::mutex> guard(state_lock);
    if (overlaps_pinned(from, from + bytes))
        return call_end(cudaErrorHostMemoryAlreadyRegistered);
    if (allocation_at(from) != nullptr ||
        !is_mapped(from, from + bytes, !(flags & cudaHostRegisterReadOnly)))
        return call_end(cudaErrorInvalidValue);
    pinneds[from] = {bytes, flags, true};
    return cudaSuccess;
}

cudaError_t cudaHostUnregister(void *memory)
{
    CALL("cudaHostUnregister");
    std::unique_lock<std::mutex> lock(state_lock);
    auto it = pinneds.find((uintptr_t)memory);
    if (it == pinneds.end() || !it->second.registered)
        return call_end(cudaErrorHostMemoryNotRegistered);
    cudaError_t error = stream_wait_for_all(lock);
    pinneds.erase((uintptr_t)memory);
    return call_end(error);
}

/* Kernels reach pinned memory at the host's address. */
cudaError_t cudaHostGetDevicePointer(void **device, void *host, unsigned flags)
{
    CALL("cudaHostGetDevicePointer");
    std::lock_guard<std::mutex> guard(state_lock);
    uintptr_t base;
    if (device == nullptr || flags != 0 || pinned_at((uintptr_t)host, &base) == nullptr)
        return call_end(cudaErrorInvalidValue);
    *device = host;
    return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *attributes, const void *memory)
{
    CALL("cudaPointerGetAttributes");
    if (attributes == nullptr)
        return call_end(cudaErrorInvalidValue);
    std::lock_guard<std::mutex> guard(state_lock);
    void *p = const_cast<void *>(memory);
    uintptr_t base;
    const allocation *a = allocation_at((uintptr_t)memory);
    *attributes = {cudaMemoryTypeUnregistered, -2, nullptr, p};
    if (a != nullptr)
        *attributes = {cudaMemoryTypeDevice, a->device, p, nullptr};
    else if (pinned_at((uintptr_t)memory, &base) != nullptr)
        *attributes = {cudaMemoryTypeHost, current_device(), p, p};
    return cudaSuccess;
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind)
{
    CALL("cudaMemcpy");
    return call_end(
        copy({(char *)to, (const char *)from, bytes, bytes, bytes, 1}, kind, nullptr, true));
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t stream)
{
    CALL("cudaMemcpyAsync");
    return call_end(
        copy({(char *)to, (const char *)from, bytes, bytes, bytes, 1}, kind, stream, false));
}

cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch,
                              size_t width, size_t height, enum cudaMemcpyKind kind,
                              cudaStream_t stream)
{
    CALL("cudaMemcpy2DAsync");
    if (width > to_pitch || width > from_pitch)
        return call_end(cudaErrorInvalidValue);
    return call_end(copy({(char *)to, (const char *)from, to_pitch, from_pitch, width, height},
                         kind, stream, false));
}

cudaError_t cudaMemset(void *to, int value, size_t bytes)
{
    CALL("cudaMemset");
    return call_end(fill(to, value, bytes, nullptr));
}

cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream)
{
    CALL("cudaMemsetAsync");
    return call_end(fill(to, value, bytes, stream));
}
}
