/* The CUDA module: opening a device, and the table of functions; see device/module.h. */
#include "architectures.h"
#include "blas.h"
#include "event.h"
#include "flags.h"
#include "graph.h"
#include "memory.h"
#include "ops.h"
#include "preload.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Kernels need independent threads of a warp. */
#define LEAST_CAPABILITY 70

/* cudaDevAttrMpsEnabled, which toolkits before CUDA 12.3 do not name. */
#define ATTRIBUTE_MPS ((enum cudaDeviceAttr)133)

/* ---- Opening ---- */

static void version_text(int version, char out[16])
{
    snprintf(out, 16, "%d.%d", version / 1000, version % 1000 / 10);
}

/* Checks that the driver is installed, is new enough, and has that device. */
static enum error_code check_driver(unsigned ordinal, char version[64], struct error *e)
{
    int driver = 0, runtime = 0, count = 0;
    char driver_text[16], runtime_text[16];
    cudaDriverGetVersion(&driver);
    cudaRuntimeGetVersion(&runtime);
    version_text(driver, driver_text);
    version_text(runtime, runtime_text);
    snprintf(version, 64, "driver for CUDA %s, runtime %s", driver_text, runtime_text);
    if (driver == 0)
        return error_set(
            e, ERROR_NOT_FOUND,
            "device cuda: no NVIDIA driver is installed here (libcuda.so.1): install it, "
            "or use --device host");
    cudaError_t code = cudaGetDeviceCount(&count);
    if (code == cudaErrorInsufficientDriver)
        return error_set(e, ERROR_UNSUPPORTED,
                         "device cuda: the NVIDIA driver supports CUDA up to %s, moed's module "
                         "needs %s: update the driver, or use --device host",
                         driver_text, runtime_text);
    if (code == cudaErrorNoDevice || (code == cudaSuccess && count == 0))
        return error_set(e, ERROR_NOT_FOUND,
                         "device cuda: the driver finds no device (CUDA_VISIBLE_DEVICES hides "
                         "devices that it does not name): use --device host");
    if (code != cudaSuccess)
        return CUDA_EXPLAIN(e, code, "cudaGetDeviceCount");
    if (ordinal >= (unsigned)count)
        return error_set(e, ERROR_NOT_FOUND, "device cuda:%u: the driver finds %d, counted from 0",
                         ordinal, count);
    return ERROR_OK;
}

/* The kernels' code has to wait (dependent.cuh), which code for older devices does not; drivers
 * before CUDA 12.3 cannot keep such launches in graphs. */
static bool has_dependent_launches(int architecture)
{
    int driver = 0;
    const char *wanted = getenv("MOED_DEVICE_PDL");
    cudaDriverGetVersion(&driver);
    return architecture >= 90 && driver >= 12030 && !(wanted && strcmp(wanted, "0") == 0);
}

/* capability: as 75 for 7.5. */
static enum error_code check_capability(const char *name, int capability, struct error *e)
{
    int least = cuda_least_architecture();
    if (capability < LEAST_CAPABILITY)
        return error_set(e, ERROR_UNSUPPORTED,
                         "device cuda: %s has compute capability %d.%d, moed needs 7.0 (built "
                         "with CUDA 12) or 7.5 (CUDA 13): use --device host",
                         name, capability / 10, capability % 10);
    if (capability < least)
        return error_set(
            e, ERROR_UNSUPPORTED,
            "device cuda: %s has compute capability %d.%d, moed's module was built for "
            "%d.%d and newer: build it %sMOED_CUDA_ARCHITECTURES=%d, or use --device host",
            name, capability / 10, capability % 10, least / 10, least % 10,
            capability < 75 && CUDART_VERSION >= 13000 ? "with CUDA 12 and " : "with ", capability);
    return ERROR_OK;
}

/* 0: the driver does not know the attribute. */
static int attribute(const struct device *d, enum cudaDeviceAttr which)
{
    int value = 0;
    if (cudaDeviceGetAttribute(&value, which, d->ordinal) == cudaSuccess)
        return value;
    cudaGetLastError();
    return 0;
}

/* Drivers before CUDA 12.3 do not report MPS. Its daemon makes this file; the default folder is
 * that of NVIDIA's manual of MPS. */
static bool has_mps(const struct device *d)
{
    const char *folder = getenv("CUDA_MPS_PIPE_DIRECTORY");
    char path[4096];
    if (attribute(d, ATTRIBUTE_MPS))
        return true;
    snprintf(path, sizeof path, "%.4000s/control", folder && *folder ? folder : "/tmp/nvidia-mps");
    return access(path, F_OK) == 0;
}

/* Which processes may use the device (nvidia-smi -c). */
static enum error_code read_mode(struct device *d, struct error *e)
{
    int mode = attribute(d, cudaDevAttrComputeMode);
    bool exclusive = mode == cudaComputeModeExclusiveProcess, mps = exclusive && has_mps(d);
    d->display = attribute(d, cudaDevAttrKernelExecTimeout) != 0;
    d->exclusive = exclusive && !mps;
    snprintf(d->mode, sizeof d->mode, "compute mode %s%s",
             exclusive ? "Exclusive_Process" : "Default", mps ? " with MPS" : "");
    if (mode != cudaComputeModeProhibited)
        return ERROR_OK;
    return error_set(e, ERROR_UNSUPPORTED,
                     "device cuda:%d: %s is in compute mode Prohibited, so no process can use it: "
                     "run nvidia-smi -i %d -c DEFAULT as root, or use --device host",
                     d->ordinal, d->name, d->ordinal);
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
        return CUDA_EXPLAIN(e, code, "cudaGetDeviceProperties");
    snprintf(d->name, sizeof d->name, "%.127s", p.name);
    if (cudaDeviceGetPCIBusId(d->pci, sizeof d->pci, d->ordinal) != cudaSuccess) {
        cudaGetLastError(); /* only `moed devices` shows it */
        d->pci[0] = '\0';
    }
    d->multiprocessors = p.multiProcessorCount;
    d->block_shared_bytes = p.sharedMemPerBlock;
    d->block_shared_bytes_optin = p.sharedMemPerBlockOptin;
    d->pins_read_only = read_only != 0;
    enum error_code failed = check_capability(d->name, p.major * 10 + p.minor, e);
    return failed ? failed : read_mode(d, e);
}

static void free_device(struct device *d)
{
    free(d->pinned);
    pthread_mutex_destroy(&d->pin_lock);
    pthread_mutex_destroy(&d->lock);
    free(d);
}

static void report_compiling(const struct device *d, int architecture)
{
    char text[400];
    snprintf(text, sizeof text,
             "device cuda: the driver compiles the kernels for %.100s, because moed's module has "
             "code for %d.%d and not for this device: the first time this takes minutes; a build "
             "with MOED_CUDA_ARCHITECTURES=native avoids it",
             d->name, architecture / 10, architecture % 10);
    cuda_report(text);
}

/* Loads the kernels, and sets what their code can do. The list of architectures of the build does
 * not decide it: which code is loaded does (preload.h). A process that only copies loads the one
 * that shows whether others could: all take memory of the device, and time. */
static enum error_code load_kernels(struct device *d, enum device_opening use, struct error *e)
{
    unsigned n = 1;
    int architecture = 0;
    bool compiles = false;
    cudaError_t code = cuda_preload_one(&architecture, &compiles);
    if (code == cudaSuccess && use == DEVICE_COMPUTES) {
        if (compiles)
            report_compiling(d, architecture);
        code = cuda_preload(&n, &architecture);
    }
    if (n == 0)
        return error_set(e, ERROR_INTERNAL, "moed's module for CUDA lists no kernel");
    if (code == cudaErrorNoKernelImageForDevice || code == cudaErrorInvalidDeviceFunction) {
        cudaGetLastError();
        return error_set(e, ERROR_UNSUPPORTED,
                         "device cuda: moed's module has no code for %s: build it with "
                         "MOED_CUDA_ARCHITECTURES=native, or use --device host",
                         d->name);
    }
    if (code != cudaSuccess)
        return CUDA_EXPLAIN(e, code, "cudaFuncGetAttributes");
    d->tensor_cores = architecture >= 75;
    d->bf16 = architecture >= 80;
    d->dependent_launches = has_dependent_launches(architecture);
    return ERROR_OK;
}

static enum error_code open_device(unsigned ordinal, enum device_opening use, struct device **out,
                                   struct error *e)
{
    struct device *d = calloc(1, sizeof *d);
    if (!d)
        return error_set(e, ERROR_MEMORY, "no memory for the device");
    pthread_mutex_init(&d->lock, NULL);
    pthread_mutex_init(&d->pin_lock, NULL);
    d->ordinal = (int)ordinal;
    d->computes = use == DEVICE_COMPUTES;
    enum error_code code = check_driver(ordinal, d->version, e);
    if (!code)
        code = read_properties(d, e);
    if (!code)
        code = cuda_try_enter(d, e);
    size_t free_bytes, bytes; /* this call makes the context, and shows that the device answers */
    cudaError_t answer = code ? cudaSuccess : cudaMemGetInfo(&free_bytes, &bytes);
    if (answer != cudaSuccess)
        code = CUDA_EXPLAIN(e, answer, "cudaMemGetInfo");
    if (!code)
        code = load_kernels(d, use, e);
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
    if (cuda_enter(d)) {
        cuda_blas_close(d);
        cuda_unpin_all(d);
    }
    free_device(d);
}

static void reset_device(unsigned ordinal)
{
    if (cudaSetDevice((int)ordinal) == cudaSuccess)
        cudaDeviceReset();
    cudaGetLastError();
}

static void facts(struct device *d, struct device_facts *out)
{
    memset(out, 0, sizeof *out);
    snprintf(out->name, sizeof out->name, "%s", d->name);
    snprintf(out->version, sizeof out->version, "%s", d->version);
    out->multiprocessors = (unsigned)d->multiprocessors;
    snprintf(out->pci, sizeof out->pci, "%s", d->pci);
    snprintf(out->blas, sizeof out->blas, "%s", cuda_blas_name(d));
    out->signals = d->signals;
    out->display = d->display;
    out->exclusive = d->exclusive;
    snprintf(out->mode, sizeof out->mode, "%s", d->mode);
    cuda_memory_info(d, &out->free_bytes, &out->memory_bytes);
}

static enum error_code load_blas(struct device *d, struct device_blas *out, struct error *e)
{
    enum error_code failed = cuda_try_enter(d, e);
    return failed ? failed : cuda_blas_open(d, out, e);
}

/* ---- The table ---- */

static const struct device_module module = {
    .abi = DEVICE_MODULE_ABI,
#ifdef MOED_CUSIM
    .name = "cusim",
#else
    .name = "cuda",
#endif
    .report_to = cuda_report_to,
    .open = open_device,
    .close = close_device,
    .reset = reset_device,
    .facts = facts,
    .load_blas = load_blas,
    .allocate = cuda_allocate,
    .release = cuda_release,
    .export_memory = cuda_export_memory,
    .import_memory = cuda_import_memory,
    .close_imported = cuda_close_imported,
    .pin = cuda_pin,
    .unpin = cuda_unpin,
    .allocate_pinned = cuda_allocate_pinned,
    .release_pinned = cuda_release_pinned,
    .stream_new = cuda_stream_new,
    .stream_free = cuda_stream_free,
    .upload = cuda_upload,
    .download = cuda_download,
    .copy = cuda_copy,
    .fill = cuda_fill,
    .finish = cuda_finish,
    .guard = cuda_guard,
    .graph_begin = cuda_graph_begin,
    .graph_end = cuda_graph_end,
    .graph_launch = cuda_graph_launch,
    .graph_free = cuda_graph_free,
    .event_new = cuda_event_new,
    .event_free = cuda_event_free,
    .event_record = cuda_event_record,
    .stream_wait = cuda_stream_wait,
    .signal = cuda_flag_signal,
    .await = cuda_flag_await,
    .event_query = cuda_event_query,
    .event_wait = cuda_event_wait,
    .ops =
        {
            .activations_bytes = cuda_activations_bytes,
            .activations_bind = cuda_activations_bind,
            .quantize = cuda_quantize,
            .multiply = cuda_multiply,
            .multiply_several = cuda_multiply_several,
            .multiply_gated = cuda_multiply_gated,
            .multiply_planes = cuda_multiply_planes,
            .multiply_many_scratch_bytes = cuda_multiply_many_scratch_bytes,
            .multiply_many = cuda_multiply_many,
            .multiply_many_planes = cuda_multiply_many_planes,
            .experts_scratch_bytes = cuda_experts_scratch_bytes,
            .experts = cuda_experts,
            .chosen_bytes = cuda_chosen_bytes,
            .choose = cuda_choose,
            .experts_chosen = cuda_experts_chosen,
            .embed = cuda_embed,
            .norm = cuda_norm,
            .norm_add = cuda_norm_add,
            .norm_quantize = cuda_norm_quantize,
            .add = cuda_add,
            .place_heads = cuda_place_heads,
            .place_latent = cuda_place_latent,
            .attend_scratch_bytes = cuda_attend_scratch_bytes,
            .attend = cuda_attend,
            .attend_many = cuda_attend_many,
            .gated = cuda_gated,
            .split = cuda_split,
            .delta = cuda_delta,
            .short_convolution = cuda_short_convolution,
            .gate_by_sigmoid = cuda_gate_by_sigmoid,
            .gate_parts = cuda_gate_parts,
            .scale = cuda_scale,
            .gate_scratch_bytes = cuda_gate_scratch_bytes,
            .gate = cuda_gate,
            .route = cuda_route,
            .combine = cuda_combine,
            .largest_scratch_bytes = cuda_largest_scratch_bytes,
            .largest = cuda_largest,
        },
};

__attribute__((visibility("default"))) const struct device_module *moed_device_module(void);

const struct device_module *moed_device_module(void)
{
    return &module;
}
