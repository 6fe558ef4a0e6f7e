/* Memory shared between processes. A handle names a file that its process has open (pid,
 * descriptor, inode) and a range of it; another process opens it through /proc. So memory lives as
 * long as a process maps it, and a handle as long as its process. */
#include "ipc.h"

#include "runtime.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace
{
const uint32_t MEMORY_MAGIC = 0x6d697363, EVENT_MAGIC = 0x76697363;
enum { PAGE = 4096 };

static_assert(sizeof(struct memory_name) <= CUDA_IPC_HANDLE_SIZE, "a handle holds a name");

bool name_file(int fd, uint32_t magic, struct memory_name *name)
{
    struct stat s;
    if (fstat(fd, &s) != 0)
        return false;
    *name = {magic, (int32_t)getpid(), fd, 0, (uint64_t)s.st_ino, 0, 0};
    return true;
}

/* The file of a name, if its process still has it. */
cudaError_t open_named(const struct memory_name &name, uint32_t magic, int *fd)
{
    char path[64];
    struct stat s;
    if (name.magic != magic)
        return cudaErrorInvalidResourceHandle;
    if (name.pid == getpid())
        return cudaErrorDeviceUninitialized; /* only other processes may open a handle */
    snprintf(path, sizeof path, "/proc/%d/fd/%d", name.pid, name.fd);
    *fd = open(path, O_RDWR | O_CLOEXEC);
    if (*fd < 0)
        return cudaErrorInvalidResourceHandle;
    if (fstat(*fd, &s) == 0 && (uint64_t)s.st_ino == name.inode)
        return cudaSuccess;
    close(*fd);
    return cudaErrorInvalidResourceHandle;
}

bool same_name(const struct memory_name &a, const struct memory_name &b)
{
    return memcmp(&a, &b, sizeof a) == 0;
}
} // namespace

struct shared_event *ipc_new_page(struct memory_name *name)
{
    int fd = memfd_create("cusim-event", MFD_CLOEXEC);
    void *page = MAP_FAILED;
    if (fd >= 0 && ftruncate(fd, PAGE) == 0 && name_file(fd, EVENT_MAGIC, name))
        page = mmap(nullptr, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    return page == MAP_FAILED ? nullptr : static_cast<struct shared_event *>(page);
}

cudaError_t ipc_open_page(const struct memory_name &name, struct shared_event **out)
{
    int fd;
    cudaError_t error = open_named(name, EVENT_MAGIC, &fd);
    if (error != cudaSuccess)
        return error;
    void *page = mmap(nullptr, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (page == MAP_FAILED)
        return cudaErrorMapBufferObjectFailed;
    *out = static_cast<struct shared_event *>(page);
    return cudaSuccess;
}

extern "C" {
cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t *handle, void *memory)
{
    CALL("cudaIpcGetMemHandle");
    std::lock_guard<std::mutex> guard(state_lock);
    struct allocation *a = memory_find(memory);
    struct memory_name name;
    if (handle == nullptr || a == nullptr || a->n_opened != 0)
        return call_end(cudaErrorInvalidValue);
    if (!name_file(memory_file(), MEMORY_MAGIC, &name))
        return call_end(cudaErrorOperatingSystem);
    name.device = a->device;
    name.offset = (uint64_t)a->offset;
    name.bytes = a->bytes;
    a->exported = true;
    *handle = {};
    memcpy(handle, &name, sizeof name);
    return cudaSuccess;
}

/* A second open gives the same memory; each open needs a close. */
cudaError_t cudaIpcOpenMemHandle(void **memory, cudaIpcMemHandle_t handle, unsigned flags)
{
    CALL("cudaIpcOpenMemHandle");
    struct memory_name name;
    int fd;
    memcpy(&name, &handle, sizeof name);
    if (memory == nullptr || flags != cudaIpcMemLazyEnablePeerAccess)
        return call_end(cudaErrorInvalidValue);
    std::lock_guard<std::mutex> guard(state_lock);
    struct allocation *opened = memory_find_if(
        [&](const struct allocation &a) { return a.n_opened != 0 && same_name(a.name, name); });
    if (opened != nullptr) {
        opened->n_opened++;
        *memory = opened->memory;
        return cudaSuccess;
    }
    cudaError_t error = open_named(name, MEMORY_MAGIC, &fd);
    if (error != cudaSuccess)
        return call_end(error);
    void *p = memory_map(fd, (off_t)name.offset, (size_t)name.bytes);
    close(fd);
    if (p == nullptr)
        return call_end(cudaErrorMapBufferObjectFailed);
    memory_add(p, {p, (size_t)name.bytes, (off_t)name.offset, name.device, 1, false, name});
    *memory = p;
    return cudaSuccess;
}

cudaError_t cudaIpcCloseMemHandle(void *memory)
{
    CALL("cudaIpcCloseMemHandle");
    std::unique_lock<std::mutex> lock(state_lock);
    struct allocation *a = memory_find(memory);
    if (a == nullptr || a->n_opened == 0)
        return call_end(cudaErrorInvalidValue);
    cudaError_t error = stream_wait_for_all(lock);
    a = memory_find(memory);
    if (a != nullptr && --a->n_opened == 0) {
        memory_unmap(memory, a->bytes);
        memory_remove(memory);
    }
    return call_end(error);
}
}
