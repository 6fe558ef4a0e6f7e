/* The CUDA module: opening a device, memory, streams, events, and the table; see device/module.h and internal.h.
 *
 * The runtime's current device is the calling thread's, so whoever calls in is put onto this one first. Errors: what a call
 * returns is put into words where it was made, with the place; the first one of a device is kept, since a fault (an illegal
 * address, say) is returned by every call that follows, whatever it is. */
#include "blas.h"
#include "flags.h"
#include "internal.h"
#include "ops.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* While host memory is registered the driver makes other calls wait; and one call takes at most so much. */
#define PIN_BYTES (1ull << 30)

_Static_assert(DEVICE_HANDLE_BYTES == sizeof(cudaIpcMemHandle_t), "a handle is the runtime's");

/* ---- Errors ---- */

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* Whether it is worth another try. */
static enum error_code code_of(cudaError_t code)
{
    switch (code) {
    case cudaErrorMemoryAllocation: return ERROR_MEMORY;
    case cudaErrorNotSupported:
    case cudaErrorInvalidDeviceFunction:
    case cudaErrorNoKernelImageForDevice: return ERROR_UNSUPPORTED;
    default: return ERROR_IO;
    }
}

/* "module.c:123: cudaMalloc(...): out of memory (cudaErrorMemoryAllocation)" */
static enum error_code explain(struct error *e, cudaError_t code, const char *what,
                               const char *file, int line)
{
    int name = (int)strcspn(what, "("); /* of a call the function alone */
    cudaGetLastError();                 /* it is told: the next call's error is its own */
    return error_set(e, code_of(code), "%s:%d: %.*s: %s (%s)", base_name(file), line, name, what,
                     cudaGetErrorString(code), cudaGetErrorName(code));
}
#define EXPLAIN(e, code, what) explain(e, code, what, __FILE__, __LINE__)

static void keep_first(struct device *d, const struct error *e)
{
    pthread_mutex_lock(&d->lock);
    if (d->first.code == ERROR_OK)
        d->first = *e;
    pthread_mutex_unlock(&d->lock);
}

bool cuda_remember(struct device *d, cudaError_t code, const char *what, const char *file, int line)
{
    struct error e;
    if (code == cudaSuccess)
        return true;
    explain(&e, code, what, file, line);
    keep_first(d, &e);
    return false;
}

void cuda_refuse(struct device *d, const char *what, const char *file, int line)
{
    struct error e;
    error_set(&e, ERROR_INTERNAL, "%s:%d: %s", base_name(file), line, what);
    keep_first(d, &e);
}

static enum error_code first_error(struct device *d, struct error *e)
{
    pthread_mutex_lock(&d->lock);
    enum error_code code = d->first.code;
    if (code && e)
        *e = d->first;
    pthread_mutex_unlock(&d->lock);
    return code;
}

/* ---- Opening ---- */

static bool enter(struct device *d)
{
    static _Thread_local int current = -1;
    if (current == d->ordinal)
        return true;
    if (!cuda_try(d, cudaSetDevice(d->ordinal)))
        return false;
    current = d->ordinal;
    return true;
}

/* For calls that say at once what went wrong. */
static enum error_code try_enter(struct device *d, struct error *e)
{
    return enter(d) ? ERROR_OK : first_error(d, e);
}

static void version_words(int version, char out[16])
{
    snprintf(out, 16, "%d.%d", version / 1000, version % 1000 / 10);
}

/* The driver is there, is new enough, and has that device. */
static enum error_code check_driver(unsigned ordinal, char version[64], struct error *e)
{
    int driver = 0, runtime = 0, count = 0;
    char driver_words[16], runtime_words[16];
    cudaDriverGetVersion(&driver);
    cudaRuntimeGetVersion(&runtime);
    version_words(driver, driver_words);
    version_words(runtime, runtime_words);
    snprintf(version, 64, "driver for CUDA %s, runtime %s", driver_words, runtime_words);
    if (driver == 0)
        return error_set(
            e, ERROR_UNSUPPORTED,
            "device cuda: no NVIDIA driver is installed here (libcuda.so.1): install it, "
            "or use --device host");
    cudaError_t code = cudaGetDeviceCount(&count);
    if (code == cudaErrorInsufficientDriver)
        return error_set(
            e, ERROR_UNSUPPORTED,
            "device cuda: the NVIDIA driver serves CUDA %s and older, moed's module is "
            "of CUDA %s: update the driver, or use --device host",
            driver_words, runtime_words);
    if (code == cudaErrorNoDevice || (code == cudaSuccess && count == 0))
        return error_set(
            e, ERROR_NOT_FOUND,
            "device cuda: the driver finds no device (CUDA_VISIBLE_DEVICES hides those "
            "that it does not name): use --device host");
    if (code != cudaSuccess)
        return EXPLAIN(e, code, "cudaGetDeviceCount");
    if (ordinal >= (unsigned)count)
        return error_set(e, ERROR_NOT_FOUND, "device cuda:%u: there are %d, counted from 0",
                         ordinal, count);
    return ERROR_OK;
}

static enum error_code read_properties(struct device *d, struct error *e)
{
    struct cudaDeviceProp p;
    cudaError_t code = cudaGetDeviceProperties(&p, d->ordinal);
    int read_only = 0;
    if (code == cudaSuccess)
        code = cudaDeviceGetAttribute(&read_only, cudaDevAttrHostRegisterReadOnlySupported,
                                      d->ordinal);
    if (code != cudaSuccess)
        return EXPLAIN(e, code, "cudaGetDeviceProperties");
    snprintf(d->name, sizeof d->name, "%.127s", p.name);
    d->multiprocessors = p.multiProcessorCount;
    d->block_shared_bytes = p.sharedMemPerBlock;
    d->block_shared_bytes_optin = p.sharedMemPerBlockOptin;
    d->pins_read_only = read_only != 0;
    if (p.major * 10 + p.minor < cuda_least_architecture())
        return error_set(
            e, ERROR_UNSUPPORTED,
            "device cuda: %s has compute capability %d.%d, moed's module was built for "
            "%d.%d and newer: build it with MOED_CUDA_ARCHITECTURES=%d%d, or use "
            "--device host",
            d->name, p.major, p.minor, cuda_least_architecture() / 10,
            cuda_least_architecture() % 10, p.major, p.minor);
    return ERROR_OK;
}

static void free_device(struct device *d)
{
    free(d->pinned);
    pthread_mutex_destroy(&d->pin_lock);
    pthread_mutex_destroy(&d->lock);
    free(d);
}

static enum error_code open_device(unsigned ordinal, struct device **out, struct error *e)
{
    struct device *d = calloc(1, sizeof *d);
    if (!d)
        return error_set(e, ERROR_MEMORY, "no memory for the device");
    pthread_mutex_init(&d->lock, NULL);
    pthread_mutex_init(&d->pin_lock, NULL);
    d->ordinal = (int)ordinal;
    enum error_code code = check_driver(ordinal, d->version, e);
    if (!code)
        code = read_properties(d, e);
    if (!code)
        code = try_enter(d, e);
    size_t free_bytes, bytes; /* makes the context, and shows whether the device answers */
    cudaError_t asked = code ? cudaSuccess : cudaMemGetInfo(&free_bytes, &bytes);
    if (asked != cudaSuccess)
        code = EXPLAIN(e, asked, "cudaMemGetInfo");
    if (code) {
        free_device(d);
        return code;
    }
    d->signals = cuda_flags_find();
    *out = d;
    return ERROR_OK;
}

static void close_device(struct device *d)
{
    if (!d)
        return;
    if (enter(d)) {
        cuda_blas_close(d);
        while (d->n_pinned)
            cudaHostUnregister(d->pinned[--d->n_pinned].memory);
    }
    free_device(d);
}

static void facts(struct device *d, struct device_facts *out)
{
    size_t free_bytes = 0, bytes = 0;
    memset(out, 0, sizeof *out);
    snprintf(out->name, sizeof out->name, "%s", d->name);
    snprintf(out->version, sizeof out->version, "%s", d->version);
    out->multiprocessors = (unsigned)d->multiprocessors;
    out->signals = d->signals;
    if (enter(d))
        cuda_try(d, cudaMemGetInfo(&free_bytes, &bytes));
    out->free_bytes = free_bytes;
    out->memory_bytes = bytes;
}

static enum error_code load_blas(struct device *d, struct device_blas *out, struct error *e)
{
    enum error_code failed = try_enter(d, e);
    return failed ? failed : cuda_blas_open(d, out, e);
}

/* ---- Memory ---- */

static enum error_code allocate(struct device *d, size_t bytes, void **out, struct error *e)
{
    struct device_facts now;
    enum error_code failed = try_enter(d, e);
    cudaError_t code = failed ? cudaSuccess : cudaMalloc(out, bytes);
    if (failed || code == cudaSuccess)
        return failed;
    if (code != cudaErrorMemoryAllocation)
        return EXPLAIN(e, code, "cudaMalloc");
    cudaGetLastError();
    facts(d, &now);
    return error_set(
        e, ERROR_MEMORY,
        "%s has no %.3f GB for us, %.3f of %.3f GB are free: give a smaller vram=", d->name,
        (double)bytes * 1e-9, (double)now.free_bytes * 1e-9, (double)now.memory_bytes * 1e-9);
}

static void release(struct device *d, void *memory)
{
    if (memory && enter(d))
        cuda_try(d, cudaFree(memory));
}

static enum error_code export_memory(struct device *d, void *memory, struct device_handle *out,
                                     struct error *e)
{
    cudaIpcMemHandle_t handle;
    enum error_code failed = try_enter(d, e);
    cudaError_t code = failed ? cudaSuccess : cudaIpcGetMemHandle(&handle, memory);
    if (!failed && code != cudaSuccess)
        failed = EXPLAIN(e, code, "cudaIpcGetMemHandle");
    if (!failed)
        memcpy(out->bytes, &handle, sizeof handle);
    return failed;
}

static enum error_code import_memory(struct device *d, const struct device_handle *from, void **out,
                                     struct error *e)
{
    cudaIpcMemHandle_t handle;
    memcpy(&handle, from->bytes, sizeof handle);
    enum error_code failed = try_enter(d, e);
    cudaError_t code =
        failed ? cudaSuccess : cudaIpcOpenMemHandle(out, handle, cudaIpcMemLazyEnablePeerAccess);
    return failed || code == cudaSuccess ? failed : EXPLAIN(e, code, "cudaIpcOpenMemHandle");
}

static void close_imported(struct device *d, void *memory)
{
    if (memory && enter(d))
        cuda_try(d, cudaIpcCloseMemHandle(memory));
}

/* Room for one more in the list of what is pinned. */
static bool more_pinned(struct device *d)
{
    if (d->n_pinned < d->max_pinned)
        return true;
    size_t most = d->max_pinned ? 2 * d->max_pinned : 16;
    struct cuda_pinned *list = realloc(d->pinned, most * sizeof *list);
    if (!list)
        return false;
    d->pinned = list;
    d->max_pinned = most;
    return true;
}

static cudaError_t register_part(struct device *d, void *memory, size_t bytes)
{
    cudaError_t code = cudaHostRegister(memory, bytes, cudaHostRegisterDefault);
    if (code == cudaSuccess || !d->pins_read_only)
        return code;
    cudaGetLastError(); /* a read-only mapping is refused without the flag */
    return cudaHostRegister(memory, bytes, cudaHostRegisterReadOnly);
}

/* What was registered of one pin: parts of at most PIN_BYTES. */
static void unpin(struct device *d, const void *memory)
{
    if (!enter(d))
        return;
    pthread_mutex_lock(&d->pin_lock);
    for (size_t i = d->n_pinned; i-- > 0;) {
        if (d->pinned[i].of != memory)
            continue;
        cuda_try(d, cudaHostUnregister(d->pinned[i].memory));
        d->pinned[i] = d->pinned[--d->n_pinned];
    }
    pthread_mutex_unlock(&d->pin_lock);
}

static enum error_code pin(struct device *d, const void *memory, size_t bytes, struct error *e)
{
    enum error_code failed = try_enter(d, e);
    for (size_t done = 0; !failed && done < bytes; done += PIN_BYTES) {
        size_t n = bytes - done < PIN_BYTES ? bytes - done : PIN_BYTES;
        void *part = (uint8_t *)(uintptr_t)memory + done;
        pthread_mutex_lock(&d->pin_lock);
        bool room = more_pinned(d);
        cudaError_t code = room ? register_part(d, part, n) : cudaErrorMemoryAllocation;
        if (code == cudaSuccess)
            d->pinned[d->n_pinned++] = (struct cuda_pinned){memory, part};
        pthread_mutex_unlock(&d->pin_lock);
        if (code != cudaSuccess)
            failed = EXPLAIN(e, code, "cudaHostRegister");
    }
    if (failed)
        unpin(d, memory);
    return failed;
}

static enum error_code allocate_pinned(struct device *d, size_t bytes, void **out, struct error *e)
{
    enum error_code failed = try_enter(d, e);
    cudaError_t code = failed ? cudaSuccess : cudaMallocHost(out, bytes);
    return failed || code == cudaSuccess ? failed : EXPLAIN(e, code, "cudaMallocHost");
}

static void release_pinned(struct device *d, void *memory)
{
    if (memory && enter(d))
        cuda_try(d, cudaFreeHost(memory));
}

/* ---- Streams ---- */

static void stream_free(struct device_stream *s)
{
    if (!s)
        return;
    if (enter(s->device)) {
        cuda_try(s->device, cudaStreamSynchronize(s->cuda));
        for (int i = 0; i < CUDA_STAGE_BLOCKS; i++)
            if (s->block_done[i])
                cuda_try(s->device, cudaEventDestroy(s->block_done[i]));
        release_pinned(s->device, s->staging);
        release(s->device, s->staged);
        if (s->cuda)
            cuda_try(s->device, cudaStreamDestroy(s->cuda));
    }
    free(s);
}

static enum error_code stream_new(struct device *d, struct device_stream **out, struct error *e)
{
    struct device_stream *s = calloc(1, sizeof *s);
    if (!s)
        return error_set(e, ERROR_MEMORY, "no memory for a stream");
    s->device = d;
    enum error_code failed = try_enter(d, e);
    cudaError_t code =
        failed ? cudaSuccess : cudaStreamCreateWithFlags(&s->cuda, cudaStreamNonBlocking);
    if (code != cudaSuccess)
        failed = EXPLAIN(e, code, "cudaStreamCreateWithFlags");
    if (failed) {
        free(s);
        return failed;
    }
    *out = s;
    return ERROR_OK;
}

cudaStream_t cuda_stream(struct device_stream *s)
{
    enter(s->device);
    return s->cuda;
}

static void copy_async(struct device_stream *s, void *to, const void *from, size_t bytes,
                       enum cudaMemcpyKind kind)
{
    if (bytes && enter(s->device))
        cuda_try(s->device, cudaMemcpyAsync(to, from, bytes, kind, s->cuda));
}

static void upload(struct device_stream *s, void *to, const void *from, size_t bytes)
{
    copy_async(s, to, from, bytes, cudaMemcpyHostToDevice);
}

static void download(struct device_stream *s, void *to, const void *from, size_t bytes)
{
    copy_async(s, to, from, bytes, cudaMemcpyDeviceToHost);
}

static void copy(struct device_stream *s, void *to, const void *from, size_t bytes)
{
    copy_async(s, to, from, bytes, cudaMemcpyDeviceToDevice);
}

static void fill(struct device_stream *s, void *to, uint8_t byte, size_t bytes)
{
    if (bytes && enter(s->device))
        cuda_try(s->device, cudaMemsetAsync(to, byte, bytes, s->cuda));
}

static enum error_code finish(struct device_stream *s, struct error *e)
{
    if (enter(s->device))
        cuda_try(s->device, cudaStreamSynchronize(s->cuda));
    return first_error(s->device, e);
}

/* ---- Staging ---- */

_Static_assert((int)CUDA_STAGE_BLOCKS * (int)CUDA_STAGE_BLOCK_BYTES == (int)DEVICE_STREAM_BYTES, "what it takes");

static bool make_staging(struct device_stream *s)
{
    size_t bytes = (size_t)CUDA_STAGE_BLOCKS * CUDA_STAGE_BLOCK_BYTES;
    if (s->staging && s->staged)
        return true;
    struct error e;
    bool ok = s->staging || !allocate_pinned(s->device, bytes, (void **)&s->staging, &e);
    ok = ok && !allocate(s->device, bytes, (void **)&s->staged, &e);
    if (!ok)
        keep_first(s->device, &e);
    for (int i = 0; i < CUDA_STAGE_BLOCKS && ok; i++)
        ok = cuda_try(s->device,
                      cudaEventCreateWithFlags(&s->block_done[i], cudaEventDisableTiming));
    return ok;
}

/* On to the next block: what was staged in it a turn of the ring ago is copied. */
static bool next_block(struct device_stream *s)
{
    bool ok = cuda_try(s->device, cudaEventRecord(s->block_done[s->block], s->cuda));
    s->block = (s->block + 1) % CUDA_STAGE_BLOCKS;
    s->block_used = 0;
    /* never recorded: it returns at once */
    return ok && cuda_try(s->device, cudaEventSynchronize(s->block_done[s->block]));
}

void *cuda_stage(struct device_stream *s, const void *from, size_t bytes)
{
    size_t room = (bytes + 255) & ~(size_t)255;
    if (s->captured) {
        cuda_refuse(s->device, "a graph that reads host memory", __FILE__, __LINE__);
        return NULL;
    }
    if (room > CUDA_STAGE_BLOCK_BYTES) {
        cuda_refuse(s->device, "more is staged at once than a block holds", __FILE__, __LINE__);
        return NULL;
    }
    if (!enter(s->device) || !make_staging(s))
        return NULL;
    if (s->block_used + room > CUDA_STAGE_BLOCK_BYTES && !next_block(s))
        return NULL;
    size_t at = (size_t)s->block * CUDA_STAGE_BLOCK_BYTES + s->block_used;
    s->block_used += room;
    memcpy(s->staging + at, from, bytes);
    bool ok = cuda_try(s->device, cudaMemcpyAsync(s->staged + at, s->staging + at, bytes,
                                                  cudaMemcpyHostToDevice, s->cuda));
    return ok ? s->staged + at : NULL;
}

/* ---- Graphs ---- */

static void guard(struct device_stream *s, const uint32_t *stop)
{
    s->guard = stop;
}

static void graph_begin(struct device_stream *s)
{
    /* other threads of this process may allocate meanwhile, and do other things that this one may not */
    if (enter(s->device))
        s->captured = cuda_try(s->device, cudaStreamBeginCapture(s->cuda, cudaStreamCaptureModeThreadLocal));
}

static void graph_free(struct device_graph *g)
{
    if (g && g->cuda && enter(g->device))
        cuda_try(g->device, cudaGraphExecDestroy(g->cuda));
    free(g);
}

/* No memory is no failure of the device: the caller goes on without the graph. Any other is. */
static enum error_code made(struct device_graph *g, cudaError_t code, const char *what, struct error *e)
{
    if (code == cudaErrorMemoryAllocation) {
        cudaGetLastError();
        return EXPLAIN(e, code, what);
    }
    cuda_remember(g->device, code, what, __FILE__, __LINE__);
    return first_error(g->device, e);
}

/* Uploaded, too: launching it takes no more memory. */
static enum error_code instantiate(struct device_stream *s, cudaGraph_t captured, struct device_graph *g,
                                   struct error *e)
{
    enum error_code code =
        made(g, cudaGraphInstantiateWithFlags(&g->cuda, captured, 0), "cudaGraphInstantiateWithFlags", e);
    return code ? code : made(g, cudaGraphUpload(g->cuda, s->cuda), "cudaGraphUpload", e);
}

static enum error_code graph_end(struct device_stream *s, struct device_graph **out, struct error *e)
{
    cudaGraph_t captured = NULL;
    struct device_graph *g = calloc(1, sizeof *g);
    if (s->captured && enter(s->device))
        cuda_try(s->device, cudaStreamEndCapture(s->cuda, &captured));
    s->captured = false;
    enum error_code code = g ? first_error(s->device, e) : error_set(e, ERROR_MEMORY, "no memory for a graph");
    if (g)
        g->device = s->device;
    if (!code)
        code = instantiate(s, captured, g, e);
    if (captured)
        cuda_try(s->device, cudaGraphDestroy(captured));
    if (code) {
        graph_free(g);
        return code;
    }
    *out = g;
    return ERROR_OK;
}

static void graph_launch(struct device_stream *s, struct device_graph *g)
{
    if (enter(s->device))
        cuda_try(s->device, cudaGraphLaunch(g->cuda, s->cuda));
}

/* ---- Events ---- */

static enum error_code event_new(struct device *d, struct device_event **out, struct error *e)
{
    struct device_event *v = calloc(1, sizeof *v);
    if (!v)
        return error_set(e, ERROR_MEMORY, "no memory for an event");
    v->device = d;
    enum error_code failed = try_enter(d, e);
    /* who waits for one sleeps: the copy thread waits most of the time */
    unsigned flags = cudaEventDisableTiming | cudaEventBlockingSync;
    cudaError_t code = failed ? cudaSuccess : cudaEventCreateWithFlags(&v->cuda, flags);
    if (code != cudaSuccess)
        failed = EXPLAIN(e, code, "cudaEventCreateWithFlags");
    if (failed) {
        free(v);
        return failed;
    }
    *out = v;
    return ERROR_OK;
}

static void event_free(struct device_event *v)
{
    if (v && enter(v->device))
        cuda_try(v->device, cudaEventDestroy(v->cuda));
    free(v);
}

static void event_record(struct device_event *v, struct device_stream *s)
{
    if (enter(s->device))
        cuda_try(s->device, cudaEventRecord(v->cuda, s->cuda));
}

static void stream_wait(struct device_stream *s, struct device_event *v)
{
    if (enter(s->device))
        cuda_try(s->device, cudaStreamWaitEvent(s->cuda, v->cuda, 0));
}

static enum error_code event_query(struct device_event *v, bool *done, struct error *e)
{
    cudaError_t code = enter(v->device) ? cudaEventQuery(v->cuda) : cudaSuccess;
    bool is_done = code == cudaSuccess;
    if (code == cudaErrorNotReady)
        cudaGetLastError(); /* which is no error */
    else
        cuda_remember(v->device, code, "cudaEventQuery", __FILE__, __LINE__);
    enum error_code failed = first_error(v->device, e);
    if (!failed)
        *done = is_done;
    return failed;
}

static enum error_code event_wait(struct device_event *v, struct error *e)
{
    if (enter(v->device))
        cuda_try(v->device, cudaEventSynchronize(v->cuda));
    return first_error(v->device, e);
}

/* ---- The table ---- */

static const struct device_module module = {
    .abi = DEVICE_MODULE_ABI,
#ifdef MOED_CUSIM
    .name = "cusim",
#else
    .name = "cuda",
#endif
    .open = open_device,
    .close = close_device,
    .facts = facts,
    .load_blas = load_blas,
    .allocate = allocate,
    .release = release,
    .export_memory = export_memory,
    .import_memory = import_memory,
    .close_imported = close_imported,
    .pin = pin,
    .unpin = unpin,
    .allocate_pinned = allocate_pinned,
    .release_pinned = release_pinned,
    .stream_new = stream_new,
    .stream_free = stream_free,
    .upload = upload,
    .download = download,
    .copy = copy,
    .fill = fill,
    .finish = finish,
    .guard = guard,
    .graph_begin = graph_begin,
    .graph_end = graph_end,
    .graph_launch = graph_launch,
    .graph_free = graph_free,
    .event_new = event_new,
    .event_free = event_free,
    .event_record = event_record,
    .stream_wait = stream_wait,
    .signal = cuda_flag_signal,
    .await = cuda_flag_await,
    .event_query = event_query,
    .event_wait = event_wait,
    .ops =
        {
            .activations_bytes = cuda_activations_bytes,
            .activations_bind = cuda_activations_bind,
            .quantize = cuda_quantize,
            .multiply = cuda_multiply,
            .multiply_planes = cuda_multiply_planes,
            .multiply_many_scratch_bytes = cuda_multiply_many_scratch_bytes,
            .multiply_many = cuda_multiply_many,
            .multiply_many_planes = cuda_multiply_many_planes,
            .experts_scratch_bytes = cuda_experts_scratch_bytes,
            .experts = cuda_experts,
            .chosen_bytes = cuda_chosen_bytes,
            .experts_chosen = cuda_experts_chosen,
            .embed = cuda_embed,
            .norm = cuda_norm,
            .add = cuda_add,
            .rotate = cuda_rotate,
            .scatter = cuda_scatter,
            .kv_store = cuda_kv_store,
            .attend_scratch_bytes = cuda_attend_scratch_bytes,
            .attend = cuda_attend,
            .gated = cuda_gated,
            .scale_by_sigmoid = cuda_scale_by_sigmoid,
            .route = cuda_route,
            .combine = cuda_combine,
            .largest = cuda_largest,
        },
};

__attribute__((visibility("default"))) const struct device_module *moed_device_module(void);

const struct device_module *moed_device_module(void)
{
    return &module;
}
