/* What memd keeps of the dense weights on the device, read back by its handle as a worker would,
 * and held against the host pool, byte by byte:
 *
 *   dense-check RUN [DEVICE-NUMBER]
 *
 * Prints how many bytes are there; 0: the dense weights are in host memory alone. Exit code 1: they
 * differ, or an error. */
#include "device/module.h"
#include "memory/memory_client.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK_BYTES = 1 << 20 };

static void fail(const struct error *e)
{
    fprintf(stderr, "dense-check: %s\n", e->text);
    exit(1);
}

struct reader {
    const struct device_module *module;
    struct device *device;
    struct device_stream *stream;
    void *memory;   /* imported */
    uint8_t *chunk; /* pinned */
};

static void open_reader(struct reader *r, unsigned ordinal, const struct device_handle *handle)
{
    struct error e;
    enum error_code code = device_module_load("cuda", &r->module, &e);
    if (!code)
        code = r->module->open(ordinal, DEVICE_COPIES, &r->device, &e);
    if (!code)
        code = r->module->stream_new(r->device, &r->stream, &e);
    if (!code)
        code = r->module->allocate_pinned(r->device, CHUNK_BYTES, (void **)&r->chunk, &e);
    if (!code)
        code = r->module->import_memory(r->device, handle, &r->memory, &e);
    if (code)
        fail(&e);
}

static void close_reader(struct reader *r)
{
    r->module->close_imported(r->device, r->memory);
    r->module->release_pinned(r->device, r->chunk);
    r->module->stream_free(r->stream);
    r->module->close(r->device);
}

static void compare(struct reader *r, const uint8_t *expected, uint64_t bytes)
{
    struct error e;
    for (uint64_t done = 0, n; done < bytes; done += n) {
        n = bytes - done < CHUNK_BYTES ? bytes - done : CHUNK_BYTES;
        r->module->download(r->stream, r->chunk, (const uint8_t *)r->memory + done, n);
        if (r->module->finish(r->stream, &e))
            fail(&e);
        if (memcmp(r->chunk, expected + done, n) == 0)
            continue;
        uint64_t i = 0;
        while (r->chunk[i] == expected[done + i])
            i++;
        error_set(&e, ERROR_INTERNAL, "byte %" PRIu64 " of %" PRIu64 " is %02x, expected %02x",
                  done + i, bytes, r->chunk[i], expected[done + i]);
        fail(&e);
    }
}

int main(int argc, char **argv)
{
    struct memory_client memory;
    struct error e;
    if (argc < 2) {
        fprintf(stderr, "usage: dense-check RUN [DEVICE-NUMBER]\n");
        return 2;
    }
    if (memory_client_attach(argv[1], "tool", MEMORY_TOOL, 0, 10000, &memory, &e))
        fail(&e);
    if (memory.dense_bytes) {
        struct reader r = {0};
        open_reader(&r, argc > 2 ? (unsigned)strtoul(argv[2], NULL, 10) : 0, &memory.arena_handle);
        compare(&r, memory.map.base + pool_map_dense(&memory.map).offset, memory.dense_bytes);
        close_reader(&r);
    }
    printf("%" PRIu64 "\n", memory.dense_bytes);
    memory_client_detach(&memory);
    return 0;
}
